/* Writing values of each kind, and the parts of records, structs and keys.

   What is declined here of a single value is tried by Python's own function for it. */

#include <math.h>

#include "native.h"
#include <datetime.h>

#define DIGITS_MAX 18           /* of a decimal that is written here, with its sign and its point */

static int write_value(Writer *, const Field *, PyObject *);

/* By the digits of its text; declines an exponent, and more digits than are sure to fit. */
static int
write_decimal(Writer *w, const Field *f, PyObject *value)
{
    PyObject *text = Py_IS_TYPE(value, Py_TYPE(f->second)) ? PyObject_Str(value) : NULL;
    if (text == NULL) {
        return 0;
    }
    const char *p = PyUnicode_DATA(text), *end = p + PyUnicode_GET_LENGTH(text);
    Py_ssize_t zeros = f->number;       /* to be appended, or taken away if below zero */
    int is_negative = *p == '-', is_done = end - p + zeros <= DIGITS_MAX;
    int64_t number = 0;
    for (p += is_negative; is_done && p < end; p++) {
        if (*p == '.') {
            zeros -= end - p - 1;
            continue;
        }
        is_done = *p >= '0' && *p <= '9';
        number = 10 * number + (*p - '0');
    }
    for (; is_done && zeros != 0; zeros += zeros < 0 ? 1 : -1) {
        is_done = zeros > 0 || number % 10 == 0;
        number = zeros > 0 ? number * 10 : number / 10;
    }
    Py_DECREF(text);
    zap_put_varint(w, is_negative ? -number : number);
    return is_done;
}

/* What Python has numbered. */
static int
write_number(Writer *w, PyObject *numbers, PyObject *value)
{
    PyObject *number = PyDict_GetItemWithError(numbers, value);
    return number != NULL
           && zap_write_bytes(w, PyBytes_AS_STRING(number), PyBytes_GET_SIZE(number));
}

/* As split_days() in reading.c splits them. */
static int64_t
days_of(PyObject *date)
{
    int month = PyDateTime_GET_MONTH(date), year = PyDateTime_GET_YEAR(date) - (month <= 2);
    int year_of_era = year % 400, from_march = month > 2 ? month - 3 : month + 9;
    int of_year = (153 * from_march + 2) / 5 + PyDateTime_GET_DAY(date) - 1;
    int of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    return (int64_t)(year / 400) * 146097 + of_era - ZAP_MARCH_OF_YEAR_0;
}

static int
write_time(Writer *w, const Field *f, PyObject *value)
{
    PyDateTime_CAPI *api = w->state->datetime;
    if (!Py_IS_TYPE(value, api->DateTimeType)) {
        return 0;
    }
    int of_day = PyDateTime_DATE_GET_HOUR(value) * 3600 + PyDateTime_DATE_GET_MINUTE(value) * 60
                 + PyDateTime_DATE_GET_SECOND(value);
    int64_t instant = (days_of(value) * ZAP_DAY_SECONDS + of_day) * ZAP_MICROSECONDS
                      + PyDateTime_DATE_GET_MICROSECOND(value);
    zap_put(w, (uint64_t)instant ^ ZAP_SIGN, 8);
    PyObject *zone = PyDateTime_DATE_GET_TZINFO(value);
    if (f->kind != ZAP_ZONED) {
        return zone == api->TimeZone_UTC;
    }
    *w->at++ = PyDateTime_DATE_GET_FOLD(value);
    return write_number(w, f->second, zone);
}

static int
write_float(Writer *w, PyObject *given)
{
    uint64_t bits;
    if (!PyFloat_CheckExact(given)) {
        return 0;
    }
    double value = PyFloat_AS_DOUBLE(given) + 0.0;      /* -0.0 + 0.0 is 0.0 */
    memcpy(&bits, &value, sizeof(bits));
    zap_put(w, isnan(value) ? ZAP_QUIET_NAN : bits & ZAP_SIGN ? ~bits : bits | ZAP_SIGN, 8);
    return 1;
}

static int
write_uuid(Writer *w, const Field *f, PyObject *value)
{
    PyObject *number = NULL;
    if (Py_IS_TYPE(value, f->parts->type)) {
        number = ZAP_SLOT(value, f->parts->fields[0].offset);
    }
    if (number == NULL || !PyLong_CheckExact(number)) {
        return 0;
    }
    w->at += 16;
#if PY_VERSION_HEX < 0x030D0000
    return _PyLong_AsByteArray((PyLongObject *)number, w->at - 16, 16, 0, 0) == 0;
#else
    int form = Py_ASNATIVEBYTES_BIG_ENDIAN | Py_ASNATIVEBYTES_UNSIGNED_BUFFER
               | Py_ASNATIVEBYTES_REJECT_NEGATIVE;
    Py_ssize_t size = PyLong_AsNativeBytes(number, w->at - 16, 16, form);
    return size > 0 && size <= 16;
#endif
}

/* A text behind its length, or an escaped one, if it has no zeros. */
static int
write_text(Writer *w, const Field *f, PyObject *value)
{
    Text text;
    size_t begin = w->at - w->start;
    if (!zap_open_text(value, ZAP_IS_BINARY(f), &text)) {
        return 0;
    }
    int is_escaped = f->kind < ZAP_STRING, is_done = text.size <= f->number;
    if (is_escaped) {
        is_done = is_done && memchr(text.bytes, 0, text.size) == NULL
                  && zap_write_bytes(w, text.bytes, text.size)
                  && zap_write_bytes(w, ZAP_ESCAPED_END, 2)
                  && (w->at - w->start) - begin <= (size_t)f->number;
    }
    else {
        zap_put_varint(w, text.size);
        is_done = is_done && zap_write_bytes(w, text.bytes, text.size);
    }
    Py_XDECREF(text.owner);
    return is_done;
}

static int
write_list(Writer *w, const Field *item, PyObject *items)
{
    int is_done = PyList_CheckExact(items) || PyTuple_CheckExact(items);
    for (Py_ssize_t i = 0; is_done && i < PySequence_Fast_GET_SIZE(items); i++) {
        PyObject *value = Py_NewRef(PySequence_Fast_GET_ITEM(items, i));
        is_done = write_value(w, item, value);
        Py_DECREF(value);
    }
    return is_done;
}

/* A struct, or the key of another record. */
static int
write_object(Writer *w, const Plan *parts, PyObject *value)
{
    size_t begin = w->at - w->start;
    int is_tuple = parts->type == NULL, is_made = !is_tuple && Py_IS_TYPE(value, parts->type);
    if (is_tuple ? !PyTuple_CheckExact(value) && !PyList_CheckExact(value)
                 : !is_made && !PyDict_CheckExact(value)) {
        return 0;
    }
    Py_ssize_t known = zap_write_parts(w, parts, 0, Py_SIZE(parts), value);
    return known >= 0 && (is_made || known == PyObject_Size(value))
           && (!is_tuple || (w->at - w->start) - begin <= ZAP_KEY_MAX);
}

static int
write_known(Writer *w, const Field *f, PyObject *value)
{
    (void)PyDateTimeAPI;        /* see module.c */
    PyDateTime_CAPI *api = w->state->datetime;
    size_t begin = w->at - w->start;
    int overflow, is_done;
    long long number;
    switch (f->kind) {
    case ZAP_INTEGER:
        if (!PyLong_CheckExact(value)) {
            return 0;
        }
        number = PyLong_AsLongLongAndOverflow(value, &overflow);
        zap_put_varint(w, number);
        return !overflow;
    case ZAP_DECIMAL: return write_decimal(w, f, value);
    case ZAP_DATE:
        if (!Py_IS_TYPE(value, api->DateType)) {
            return 0;
        }
        zap_put_varint(w, days_of(value));
        return 1;
    case ZAP_ENUM: return PyUnicode_CheckExact(value) && write_number(w, f->second, value);
    case ZAP_BOOLEAN: *w->at++ = value == Py_True; return PyBool_Check(value);
    case ZAP_UUID: return write_uuid(w, f, value);
    case ZAP_TIMESTAMP: case ZAP_ZONED: return write_time(w, f, value);
    case ZAP_FLOAT: return write_float(w, value);
    case ZAP_KEY: return write_object(w, f->parts, value);
    case ZAP_STRING: case ZAP_BINARY: return write_text(w, f, value);
    case ZAP_ESCAPED_STRING: case ZAP_ESCAPED_BINARY: return write_text(w, f, value);
    case ZAP_JSON: w->at++; is_done = zap_write_cbor(w, value, ZAP_DEPTH_MAX); break;
    case ZAP_LIST: w->at++; is_done = write_list(w, f->parts->fields, value); break;
    case ZAP_STRUCT: w->at++; is_done = write_object(w, f->parts, value); break;
    default: return 0;
    }
    return is_done && zap_close_extent(w, begin, f->number);
}

static int
write_value(Writer *w, const Field *f, PyObject *value)
{
    size_t begin = w->at - w->start;
    if (!zap_reserve(w, ZAP_SCALAR_MAX)) {
        return 0;
    }
    if (write_known(w, f, value)) {
        return 1;
    }
    w->at = w->start + begin;
    if (f->encode == Py_None || !zap_forget()) {
        return 0;
    }
    PyObject *bytes = PyObject_CallOneArg(f->encode, value);
    int is_done = bytes != NULL && PyBytes_CheckExact(bytes)
                  && zap_write_bytes(w, PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes));
    Py_XDECREF(bytes);
    return is_done;
}

/* A part of a dict, or its default; of a sequence; or of an object. */
static PyObject *
take_part(PyObject *source, const Field *f, Py_ssize_t at, Py_ssize_t *known)
{
    *known += 1;
    if (PyDict_CheckExact(source)) {
        PyObject *value = PyDict_GetItemWithError(source, f->name);
        if (value == NULL && !PyErr_Occurred() && f->otherwise != Py_Ellipsis) {
            *known -= 1;
            value = f->otherwise;
        }
        return Py_XNewRef(value);
    }
    if (PyTuple_CheckExact(source) || PyList_CheckExact(source)) {
        return PySequence_GetItem(source, at);
    }
    return PyObject_GetAttr(source, f->name);
}

/* Writes the fields between two places. Returns how many of them are in the source, and not its
   defaults; -1 if it declines. */
Py_ssize_t
zap_write_parts(Writer *w, const Plan *plan, Py_ssize_t from, Py_ssize_t to, PyObject *source)
{
    size_t bits = w->at - w->start, size = from < plan->keys ? 0 : (plan->optional + 7) / 8;
    Py_ssize_t known = 0;
    if (!zap_reserve(w, size)) {
        return -1;
    }
    memset(w->at, 0, size);
    w->at += size;
    for (Py_ssize_t i = from; i < to; i++) {
        const Field *f = &plan->fields[i];
        PyObject *value = take_part(source, f, i, &known);
        if (value == NULL) {
            return -1;
        }
        size_t begin = w->at - w->start;
        uint8_t is_present = value != Py_None || f->bit < 0;
        int is_done = (f->order == 0 || zap_write_bytes(w, &is_present, 1))
                      && (!is_present || write_value(w, f, value));
        Py_DECREF(value);
        if (!is_done) {
            return -1;
        }
        if (f->order == 0 && f->bit >= 0 && is_present) {
            w->start[bits + (f->bit >> 3)] |= (uint8_t)(1 << (f->bit & 7));
        }
        for (uint8_t *p = w->start + begin; f->order < 0 && p < w->at; p++) {
            *p = (uint8_t)~*p;
        }
    }
    return known;
}

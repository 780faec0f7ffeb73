/* Reading values of each kind, and the parts of records and structs.

   What is declined here of a single value is tried by Python's own function for it. */

#include <math.h>

#include "native.h"
#include <datetime.h>

#define FIRST_DAY (-719162)                     /* 0001-01-01 */
#define DAYS 3652059                            /* up to 9999-12-31 */
#define DAY_MICROSECONDS ((uint64_t)ZAP_DAY_SECONDS * ZAP_MICROSECONDS)

static PyObject *read_value(Reader *, const Field *);

/* A product, exactly as the generated code makes it. */
static PyObject *
read_decimal(Reader *r, const Field *f)
{
    PyObject *args[2] = {PyLong_FromLongLong(zap_read_varint(r)), f->second};
    PyObject *value = args[0] == NULL ? NULL : PyObject_Vectorcall(f->first, args, 2, NULL);
    Py_XDECREF(args[0]);
    return value;
}

/* What Python has numbered; a borrowed reference. */
static PyObject *
look_up(Reader *r, PyObject *by_number)
{
    PyObject *number = PyLong_FromLongLong(zap_read_varint(r));
    PyObject *found = number == NULL ? NULL : PyDict_GetItemWithError(by_number, number);
    Py_XDECREF(number);
    return found;
}

/* From days since 1970-01-01 of the Gregorian calendar, by years that begin in March: after Howard
   Hinnant, "chrono-Compatible Low-Level Date Algorithms". */
static void
split_days(int64_t days, int *year, int *month, int *day)
{
    days += ZAP_MARCH_OF_YEAR_0;        /* positive from here on */
    int era = (int)(days / 146097), of_era = (int)(days % 146097);
    int year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int from_march = (5 * of_year + 2) / 153;
    *day = of_year - (153 * from_march + 2) / 5 + 1;
    *month = from_march < 10 ? from_march + 3 : from_march - 9;
    *year = year_of_era + era * 400 + (*month <= 2);
}

static PyObject *
read_date(Reader *r)
{
    PyDateTime_CAPI *api = r->state->datetime;
    int64_t days = zap_read_varint(r);
    int year, month, day;
    if (days < FIRST_DAY || days >= FIRST_DAY + DAYS) {
        return NULL;
    }
    split_days(days, &year, &month, &day);
    return api->Date_FromDate(year, month, day, api->DateType);
}

/* A time: what a clock shows, in UTC; or in a zone, of which its fold and a number follow. */
static PyObject *
read_time(Reader *r, const Field *f)
{
    (void)PyDateTimeAPI;                /* see module.c */
    PyDateTime_CAPI *api = r->state->datetime;
    int is_zoned = f->kind == ZAP_ZONED, year, month, day;
    uint64_t since = zap_read_number(r, 8) - ZAP_SIGN - FIRST_DAY * DAY_MICROSECONDS;
    int fold = is_zoned ? (int)zap_read_number(r, 1) : 0;
    PyObject *zone = is_zoned ? look_up(r, f->first) : api->TimeZone_UTC;
    if (since >= DAYS * DAY_MICROSECONDS || fold > 1 || zone == NULL) {
        return NULL;
    }
    int of_day = (int)(since / ZAP_MICROSECONDS % ZAP_DAY_SECONDS);
    split_days((int64_t)(since / DAY_MICROSECONDS) + FIRST_DAY, &year, &month, &day);
    return api->DateTime_FromDateAndTimeAndFold(
        year, month, day, of_day / 3600, of_day / 60 % 60, of_day % 60,
        (int)(since % ZAP_MICROSECONDS), zone, fold, api->DateTimeType);
}

static PyObject *
read_float(Reader *r)
{
    uint64_t stored = zap_read_number(r, 8);
    uint64_t bits = stored & ZAP_SIGN ? stored & ~ZAP_SIGN : ~stored;
    double value;
    memcpy(&value, &bits, sizeof(value));
    int is_minus_zero = stored == ZAP_SIGN - 1;
    if (is_minus_zero || (isnan(value) && stored != ZAP_QUIET_NAN)) {
        return NULL;
    }
    return PyFloat_FromDouble(value);
}

static PyObject *
read_uuid(Reader *r, const Field *f)
{
    const Field *slots = f->parts->fields;
    PyTypeObject *type = f->parts->type;
    const uint8_t *bytes = zap_take(r, 16);
    PyObject *value = bytes == NULL ? NULL : type->tp_alloc(type, 0);
    if (value != NULL) {
#if PY_VERSION_HEX < 0x030D0000
        PyObject *number = _PyLong_FromByteArray(bytes, 16, 0, 0);
#else
        PyObject *number = PyLong_FromUnsignedNativeBytes(bytes, 16, Py_ASNATIVEBYTES_BIG_ENDIAN);
#endif
        r->is_wrong |= number == NULL;
        ZAP_SLOT(value, slots[0].offset) = number;
        ZAP_SLOT(value, slots[1].offset) = Py_NewRef(slots[1].otherwise);
    }
    return value;
}

static PyObject *
make_text(const Field *f, const uint8_t *start, Py_ssize_t size)
{
    const char *bytes = (const char *)start;
    return ZAP_IS_BINARY(f) ? PyBytes_FromStringAndSize(bytes, size)
                            : zap_text(bytes, size);
}

/* An escaped text: it ends with the first zero, but for one with zeros of its own. */
static PyObject *
read_escaped(Reader *r, const Field *f)
{
    const uint8_t *start = r->at, *zero = memchr(start, 0, r->end - start);
    if (zero == NULL || r->end - zero < 2 || zero[1] != ZAP_ESCAPED_END[1]
        || zap_take(r, zero + 2 - start) == NULL || r->at - start > f->number) {
        return NULL;
    }
    return make_text(f, start, zero - start);
}

static PyObject *
read_list(Reader *r, const Field *item)
{
    PyObject *list = PyList_New(0);
    while (list != NULL && r->at < r->end) {
        PyObject *value = read_value(r, item);
        if (value == NULL || PyList_Append(list, value) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(value);
    }
    return list;
}

/* A struct, or the key of another record: a tuple. */
static PyObject *
read_object(Reader *r, const Plan *parts)
{
    const uint8_t *start = r->at;
    PyTypeObject *type = parts->type;
    PyObject *object = type == NULL ? PyTuple_New(Py_SIZE(parts)) : type->tp_alloc(type, 0);
    int is_done = object != NULL && zap_read_parts(r, parts, 0, Py_SIZE(parts), object);
    if (!is_done || (type == NULL && r->at - start > ZAP_KEY_MAX)) {
        Py_CLEAR(object);
    }
    return object;
}

static PyObject *
read_known(Reader *r, const Field *f)
{
    const uint8_t *end = r->end;
    PyObject *value = NULL;
    int boolean;
    if (f->kind >= ZAP_STRING) {
        zap_read_extent(r, f->number);
    }
    switch (r->is_wrong ? ZAP_PYTHON : f->kind) {
    case ZAP_INTEGER: value = PyLong_FromLongLong(zap_read_varint(r)); break;
    case ZAP_DECIMAL: value = read_decimal(r, f); break;
    case ZAP_DATE: value = read_date(r); break;
    case ZAP_ENUM: value = Py_XNewRef(look_up(r, f->first)); break;
    case ZAP_BOOLEAN:
        boolean = (int)zap_read_number(r, 1);
        value = boolean > 1 ? NULL : Py_NewRef(boolean ? Py_True : Py_False);
        break;
    case ZAP_UUID: value = read_uuid(r, f); break;
    case ZAP_TIMESTAMP: case ZAP_ZONED: value = read_time(r, f); break;
    case ZAP_FLOAT: value = read_float(r); break;
    case ZAP_KEY: value = read_object(r, f->parts); break;
    case ZAP_ESCAPED_STRING: case ZAP_ESCAPED_BINARY: value = read_escaped(r, f); break;
    case ZAP_FIXED: value = zap_take(r, f->number) ? Py_NewRef(Py_True) : NULL; break;
    case ZAP_STRING: case ZAP_BINARY: value = make_text(f, r->at, r->end - r->at); break;
    case ZAP_EXTENT: value = Py_NewRef(Py_True); break;
    case ZAP_JSON: value = zap_read_cbor(r, ZAP_DEPTH_MAX); break;
    case ZAP_LIST: value = read_list(r, f->parts->fields); break;
    case ZAP_STRUCT: value = read_object(r, f->parts); break;
    }
    if (f->kind >= ZAP_STRING) {
        r->is_wrong |= f->kind >= ZAP_JSON && r->at != r->end;
        r->at = r->end;
        r->end = end;
    }
    return value;
}

static PyObject *
read_value(Reader *r, const Field *f)
{
    Py_ssize_t after, at = r->at - r->start;
    PyObject *value = read_known(r, f);
    if (value != NULL && !r->is_wrong) {
        return value;
    }
    Py_CLEAR(value);
    PyObject *pair = zap_forget() ? PyObject_CallFunction(f->decode, "On", r->data, at) : NULL;
    if (pair != NULL && PyArg_ParseTuple(pair, "On", &value, &after) && after > at
        && after <= r->end - r->start) {
        r->at = r->start + after;
        r->is_wrong = 0;
        r->has_blob |= f->encode == Py_None;
        Py_INCREF(value);
    }
    else {
        value = NULL;
    }
    Py_XDECREF(pair);
    return value;
}

/* Reads the fields between two places into an object that nobody has yet, or drops their values. */
int
zap_read_parts(Reader *r, const Plan *plan, Py_ssize_t from, Py_ssize_t to, PyObject *object)
{
    Py_ssize_t size = from < plan->keys ? 0 : (plan->optional + 7) / 8, used = plan->optional & 7;
    const uint8_t *bits = zap_take(r, size);
    if (bits == NULL || (size > 0 && used && bits[size - 1] >> used)) {
        return 0;
    }
    for (const Field *f = plan->fields + from; f < plan->fields + to; f++) {
        int is_here = f->bit < 0 || (bits[f->bit >> 3] >> (f->bit & 7) & 1);
        PyObject *value = is_here ? read_value(r, f) : Py_NewRef(Py_None);
        int is_null_though_here = is_here && f->bit >= 0 && value == Py_None;
        if (object != NULL && f->offset >= 0) {
            ZAP_SLOT(object, f->offset) = value;
        }
        else {
            Py_XDECREF(value);
        }
        if (value == NULL || is_null_though_here) {
            return 0;
        }
    }
    return 1;
}

/* Values without parts and without a length: numbers and times.

   What is declined here of a single value is tried by Python's own function for it. */

#include <math.h>

#include "native.h"
#include <datetime.h>

#define DIGITS_MAX 18           /* of a decimal that is written here, with its sign and its point */
#define QUIET_NAN (0x7FF8000000000000 | ZAP_SIGN)       /* as it is stored */
#define MICROSECONDS 1000000
#define DAY_SECONDS 86400
#define DAY_MICROSECONDS ((uint64_t)DAY_SECONDS * MICROSECONDS)
#define EPOCH 719162            /* the days from 0001-01-01 to 1970-01-01 */
#define DAYS 3652059            /* the days up to 9999-12-31 */
#define FROM_MARCH 306          /* the days from 0000-03-01 to 0001-01-01 */

#if PY_VERSION_HEX < 0x030D0000
#  define TO_16_BYTES(NUMBER, AT) _PyLong_AsByteArray((PyLongObject *)(NUMBER), AT, 16, 0, 0)
#else
#  define TO_16_BYTES(NUMBER, AT) _PyLong_AsByteArray((PyLongObject *)(NUMBER), AT, 16, 0, 0, 0)
#endif

/* By the digits of its text; declines an exponent, and more digits than are sure to fit. */
static void
write_decimal(Writer *w, const Field *f, PyObject *value)
{
    PyObject *text = Py_IS_TYPE(value, Py_TYPE(f->second)) ? PyObject_Str(value) : NULL;
    const char *start = text == NULL ? "" : PyUnicode_DATA(text), *p = start + (*start == '-');
    Py_ssize_t zeros = f->number;       /* to be appended */
    int64_t number = 0;
    w->is_wrong |= text == NULL || PyUnicode_GET_LENGTH(text) + zeros > DIGITS_MAX;
    for (; *p && !w->is_wrong; p++) {
        if (*p == '.') {
            zeros -= (Py_ssize_t)strlen(p + 1);
            continue;
        }
        w->is_wrong |= *p < '0' || *p > '9';
        number = 10 * number + (*p - '0');
    }
    w->is_wrong |= zeros < 0;
    for (; zeros > 0 && !w->is_wrong; zeros--) {
        number *= 10;
    }
    zap_put_varint(w, *start == '-' ? -number : number);
    Py_XDECREF(text);
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

/* A date; a time in UTC; or what a clock shows in a zone, of which its fold and a number follow.
   By years that begin in March, of which four have 1461 days, and 400 have 146097: after Cassio
   Neri and Lorenz Schneider, "Euclidean affine functions and their application to calendar
   algorithms". */
static PyObject *
read_time(Reader *r, const Field *f)
{
    (void)PyDateTimeAPI;                /* a variable, which its header has in each file */
    PyDateTime_CAPI *api = f->datetime;
    int is_date = f->kind == ZAP_DATE, is_zoned = f->kind == ZAP_ZONED;
    uint64_t since = is_date ? 0 : zap_read_number(r, 8) - ZAP_SIGN + EPOCH * DAY_MICROSECONDS;
    uint64_t days = is_date ? (uint64_t)zap_read_varint(r) + EPOCH : since / DAY_MICROSECONDS;
    int fold = is_zoned ? (int)zap_read_number(r, 1) : 0;
    PyObject *zone = is_zoned ? look_up(r, f->first) : api->TimeZone_UTC;
    if (days >= DAYS || fold > 1 || zone == NULL) {
        return NULL;
    }
    int of_day = (int)(since / MICROSECONDS % DAY_SECONDS);
    int quarters = 4 * ((int)days + FROM_MARCH) + 3, of_century = quarters % 146097 | 3;
    int of_year = of_century % 1461 / 4, months = (5 * of_year + 2) / 153;
    int month = months < 10 ? months + 3 : months - 9, day = of_year - (153 * months + 2) / 5 + 1;
    int year = quarters / 146097 * 100 + of_century / 1461 + (month <= 2);
    if (is_date) {
        return api->Date_FromDate(year, month, day, api->DateType);
    }
    return api->DateTime_FromDateAndTimeAndFold(
        year, month, day, of_day / 3600, of_day / 60 % 60, of_day % 60,
        (int)(since % MICROSECONDS), zone, fold, api->DateTimeType);
}

static void
write_time(Writer *w, const Field *f, PyObject *value)
{
    PyDateTime_CAPI *api = f->datetime;
    int is_date = f->kind == ZAP_DATE;
    if (!Py_IS_TYPE(value, is_date ? api->DateType : api->DateTimeType)) {
        w->is_wrong |= 1;
        return;
    }
    int month = PyDateTime_GET_MONTH(value), year = PyDateTime_GET_YEAR(value) - (month <= 2);
    int months = month > 2 ? month - 3 : month + 9;
    int of_year = (153 * months + 2) / 5 + PyDateTime_GET_DAY(value) - 1;
    int64_t days = year * 365 + year / 4 - year / 100 + year / 400 + of_year - FROM_MARCH - EPOCH;
    if (is_date) {
        zap_put_varint(w, days);
        return;
    }
    int of_day = PyDateTime_DATE_GET_HOUR(value) * 3600 + PyDateTime_DATE_GET_MINUTE(value) * 60
                 + PyDateTime_DATE_GET_SECOND(value);
    int64_t instant = (days * DAY_SECONDS + of_day) * MICROSECONDS
                      + PyDateTime_DATE_GET_MICROSECOND(value);
    PyObject *zone = PyDateTime_DATE_GET_TZINFO(value);
    zap_put(w, (uint64_t)instant ^ ZAP_SIGN, 8);
    if (f->kind == ZAP_ZONED) {
        *w->at++ = PyDateTime_DATE_GET_FOLD(value);
        zap_write_object(w, PyDict_GetItemWithError(f->second, zone));
    }
    else {
        w->is_wrong |= zone != api->TimeZone_UTC;
    }
}

/* A float as it is stored: so that the bytes of all compare as the numbers do. */
static uint64_t
form_of(double value)
{
    uint64_t bits;
    value += 0.0;       /* -0.0 + 0.0 is 0.0 */
    memcpy(&bits, &value, sizeof(bits));
    return isnan(value) ? QUIET_NAN : bits ^ (bits & ZAP_SIGN ? UINT64_MAX : ZAP_SIGN);
}

PyObject *
zap_read_scalar(Reader *r, const Field *f)
{
    uint64_t number, bits;
    double real;
    const uint8_t *bytes;
    PyObject *value, *factors[2] = {NULL, f->second};
    switch (f->kind) {
    case ZAP_INTEGER: return PyLong_FromLongLong(zap_read_varint(r));
    case ZAP_DECIMAL:           /* a product, exactly as the generated code makes it */
        factors[0] = PyLong_FromLongLong(zap_read_varint(r));
        value = factors[0] == NULL ? NULL : PyObject_Vectorcall(f->first, factors, 2, NULL);
        Py_XDECREF(factors[0]);
        return value;
    case ZAP_ENUM: return Py_XNewRef(look_up(r, f->first));
    case ZAP_BOOLEAN:
        number = zap_read_number(r, 1);
        return number > 1 ? NULL : PyBool_FromLong((long)number);
    case ZAP_UNSIGNED:
        bytes = zap_take(r, ZAP_SCALAR_MAX);
        return bytes == NULL ? NULL : _PyLong_FromByteArray(bytes, ZAP_SCALAR_MAX, 0, 0);
    case ZAP_DATE: case ZAP_TIMESTAMP: case ZAP_ZONED: return read_time(r, f);
    case ZAP_FLOAT:
        number = zap_read_number(r, 8);
        bits = number ^ (number & ZAP_SIGN ? ZAP_SIGN : UINT64_MAX);
        memcpy(&real, &bits, sizeof(real));
        return form_of(real) == number ? PyFloat_FromDouble(real) : NULL;
    case ZAP_NAMED: return Py_NewRef(f->otherwise);
    case ZAP_FIXED: return zap_take(r, f->number) == NULL ? NULL : Py_NewRef(Py_True);
    default: return NULL;
    }
}

/* The caller has reserved ZAP_SCALAR_MAX bytes. */
void
zap_write_scalar(Writer *w, const Field *f, PyObject *value)
{
    int overflow = 1;
    long long number;
    switch (f->kind) {
    case ZAP_INTEGER:
        number = PyLong_CheckExact(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
        w->is_wrong |= overflow != 0;
        zap_put_varint(w, number);
        break;
    case ZAP_DECIMAL: write_decimal(w, f, value); break;
    case ZAP_ENUM:
        value = PyUnicode_CheckExact(value) ? PyDict_GetItemWithError(f->second, value) : NULL;
        zap_write_object(w, value);
        break;
    case ZAP_BOOLEAN:
        w->is_wrong |= !PyBool_Check(value);
        *w->at++ = value == Py_True;
        break;
    case ZAP_UNSIGNED:
        w->is_wrong |= !PyLong_CheckExact(value) || TO_16_BYTES(value, w->at) < 0;
        w->at += ZAP_SCALAR_MAX;
        break;
    case ZAP_DATE: case ZAP_TIMESTAMP: case ZAP_ZONED: write_time(w, f, value); break;
    case ZAP_FLOAT:
        w->is_wrong |= !PyFloat_CheckExact(value);
        zap_put(w, form_of(PyFloat_CheckExact(value) ? PyFloat_AS_DOUBLE(value) : 0.0), 8);
        break;
    case ZAP_NAMED: break;
    default: w->is_wrong |= 1;
    }
}

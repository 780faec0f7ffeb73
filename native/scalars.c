/* UUIDs, decimals, floats, dates and timestamps. */

#include <math.h>

#include "native.h"
#include <datetime.h>
#include <structmember.h>

#define SIGN ((uint64_t)1 << 63)
#define QUIET_NAN (0x7FF8000000000000 | SIGN)   /* as it is stored */
#define DAY_SECONDS 86400
#define MICROSECONDS 1000000
#define FIRST_INSTANT (-62135596800LL * MICROSECONDS)
#define LAST_INSTANT (253402300800LL * MICROSECONDS - 1)
#define FIRST_DAY (-719162)                     /* 0001-01-01 */
#define LAST_DAY 2932896                        /* 9999-12-31 */
#define MARCH_OF_YEAR_0 719468                  /* days before 1970-01-01 */
#define ZONED_HEAD 9                            /* bytes before the number of a zone */
#define DIGITS_MAX 20                           /* characters of a decimal that is written here */
#define BEFORE_DIGIT_MAX 90000000000000000ULL   /* ten times it, and nine, is an int64_t */

#define API(STATE) ((PyDateTime_CAPI *)(STATE)->datetime)

static Py_ssize_t
offset_of(PyObject *type, const char *name)
{
    PyObject *member = PyObject_GetAttrString(type, name);
    Py_ssize_t offset = -1;
    if (member != NULL && Py_IS_TYPE(member, &PyMemberDescr_Type)) {
        offset = ((PyMemberDescrObject *)member)->d_member->offset;
    }
    Py_XDECREF(member);
    return offset;
}

static PyObject *
attribute(const char *module, const char *name)
{
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *found = imported == NULL ? NULL : PyObject_GetAttrString(imported, name);
    Py_XDECREF(imported);
    return found;
}

/* Finds the types; raises an exception, if only because UUID is made otherwise than known here. */
int
zap_load_types(State *state)
{
    (void)PyDateTimeAPI;
    state->datetime = PyCapsule_Import(PyDateTime_CAPSULE_NAME, 0);
    state->uuid_type = (PyTypeObject *)attribute("uuid", "UUID");
    state->decimal_type = (PyTypeObject *)attribute("decimal", "Decimal");
    PyObject *safe = attribute("uuid", "SafeUUID");
    if (safe != NULL) {
        state->uuid_unknown = PyObject_GetAttrString(safe, "unknown");
        Py_DECREF(safe);
    }
    if (PyErr_Occurred()) {
        return 0;
    }
    state->uuid_int = offset_of((PyObject *)state->uuid_type, "int");
    state->uuid_is_safe = offset_of((PyObject *)state->uuid_type, "is_safe");
    if (state->uuid_int < 0 || state->uuid_is_safe < 0) {
        PyErr_SetNone(PyExc_ImportError);
    }
    return !PyErr_Occurred();
}

PyObject *
zap_read_uuid(Reader *r)
{
    PyTypeObject *type = r->state->uuid_type;
    if (zap_left(r) < 16) {
        return NULL;
    }
#if PY_VERSION_HEX < 0x030D0000
    PyObject *number = _PyLong_FromByteArray(r->at, 16, 0, 0);
#else
    PyObject *number = PyLong_FromUnsignedNativeBytes(r->at, 16, Py_ASNATIVEBYTES_BIG_ENDIAN);
#endif
    PyObject *value = number == NULL ? NULL : type->tp_alloc(type, 0);
    if (value == NULL) {
        Py_XDECREF(number);
        return NULL;
    }
    r->at += 16;
    *zap_slot(value, r->state->uuid_int) = number;
    *zap_slot(value, r->state->uuid_is_safe) = Py_NewRef(r->state->uuid_unknown);
    return value;
}

int
zap_write_uuid(Writer *w, PyObject *value)
{
    if (!Py_IS_TYPE(value, w->state->uuid_type)) {
        return 0;
    }
    PyObject *number = *zap_slot(value, w->state->uuid_int);
    if (number == NULL || !PyLong_CheckExact(number)) {
        return 0;
    }
#if PY_VERSION_HEX < 0x030D0000
    if (_PyLong_AsByteArray((PyLongObject *)number, w->at, 16, 0, 0) < 0) {
        return 0;
    }
#else
    int form = Py_ASNATIVEBYTES_BIG_ENDIAN | Py_ASNATIVEBYTES_UNSIGNED_BUFFER
               | Py_ASNATIVEBYTES_REJECT_NEGATIVE;
    Py_ssize_t size = PyLong_AsNativeBytes(number, w->at, 16, form);
    if (size < 0 || size > 16) {
        return 0;
    }
#endif
    w->at += 16;
    return 1;
}

/* A product, exactly as the generated code makes it. */
PyObject *
zap_read_decimal(const Value *v, int64_t number)
{
    PyObject *integer = PyLong_FromLongLong(number);
    if (integer == NULL) {
        return NULL;
    }
    PyObject *args[2] = {integer, v->second};
    PyObject *value = PyObject_Vectorcall(v->first, args, 2, NULL);
    Py_DECREF(integer);
    return value;
}

/* Takes the digits of the text of a decimal; declines an exponent, and digits that don't fit. */
static int
take_digits(const char *p, const char *end, Py_ssize_t scale, int64_t *number)
{
    int is_negative = p < end && *p == '-', is_after = 0;
    int64_t value = 0;
    for (p += is_negative; p < end; p++) {
        if (*p == '.' && !is_after) {
            is_after = 1;
            continue;
        }
        if (*p < '0' || *p > '9' || value > (int64_t)BEFORE_DIGIT_MAX) {
            return 0;
        }
        if (is_after && scale == 0) {
            if (*p != '0') {
                return 0;
            }
            continue;
        }
        scale -= is_after;
        value = value * 10 + (*p - '0');
    }
    for (; scale > 0; scale--) {
        if (value > (int64_t)BEFORE_DIGIT_MAX) {
            return 0;
        }
        value *= 10;
    }
    *number = is_negative ? -value : value;
    return 1;
}

int
zap_write_decimal(Writer *w, PyObject *value, Py_ssize_t scale)
{
    if (!Py_IS_TYPE(value, w->state->decimal_type)) {
        return 0;
    }
    PyObject *text = PyObject_Str(value);
    if (text == NULL) {
        return 0;
    }
    int64_t number;
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    const char *digits = PyUnicode_DATA(text);
    int is_done = PyUnicode_IS_ASCII(text) && length <= DIGITS_MAX
                  && take_digits(digits, digits + length, scale, &number);
    Py_DECREF(text);
    if (is_done) {
        zap_put_varint(w, number);
    }
    return is_done;
}

PyObject *
zap_read_float(Reader *r)
{
    if (zap_left(r) < 8) {
        return NULL;
    }
    uint64_t stored = zap_big_endian(r->at, 8);
    uint64_t bits = stored & SIGN ? stored & ~SIGN : ~stored;
    double value;
    memcpy(&value, &bits, sizeof(value));
    if (stored == SIGN - 1 || (isnan(value) && stored != QUIET_NAN)) {  /* the first is -0.0 */
        return NULL;
    }
    r->at += 8;
    return PyFloat_FromDouble(value);
}

int
zap_write_float(Writer *w, PyObject *given)
{
    if (!PyFloat_CheckExact(given)) {
        return 0;
    }
    double value = PyFloat_AS_DOUBLE(given) + 0.0;      /* -0.0 + 0.0 is 0.0 */
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    zap_put(w, isnan(value) ? QUIET_NAN : bits & SIGN ? ~bits : bits | SIGN, 8);
    return 1;
}

/* Days since 1970-01-01 of the Gregorian calendar and back, by years that begin in March: after
   Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms". */
static void
split_days(int64_t days, int *year, int *month, int *day)
{
    days += MARCH_OF_YEAR_0;    /* positive from here on */
    int era = (int)(days / 146097), of_era = (int)(days % 146097);
    int year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int from_march = (5 * of_year + 2) / 153;
    *day = of_year - (153 * from_march + 2) / 5 + 1;
    *month = from_march < 10 ? from_march + 3 : from_march - 9;
    *year = year_of_era + era * 400 + (*month <= 2);
}

static int64_t
join_days(int year, int month, int day)
{
    year -= month <= 2;
    int era = year / 400, year_of_era = year % 400;
    int of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    int of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    return (int64_t)era * 146097 + of_era - MARCH_OF_YEAR_0;
}

PyObject *
zap_read_date(const State *state, int64_t days)
{
    int year, month, day;
    if (days < FIRST_DAY || days > LAST_DAY) {
        return NULL;
    }
    split_days(days, &year, &month, &day);
    return API(state)->Date_FromDate(year, month, day, API(state)->DateType);
}

int
zap_write_date(Writer *w, PyObject *value)
{
    if (!Py_IS_TYPE(value, API(w->state)->DateType)) {
        return 0;
    }
    zap_put_varint(w, join_days(PyDateTime_GET_YEAR(value), PyDateTime_GET_MONTH(value),
                                PyDateTime_GET_DAY(value)));
    return 1;
}

/* The time that 8 bytes mean on the clock of a zone. */
static PyObject *
make_datetime(const State *state, const uint8_t *bytes, PyObject *zone, int fold)
{
    int64_t instant = (int64_t)(zap_big_endian(bytes, 8) ^ SIGN);
    if (instant < FIRST_INSTANT || instant > LAST_INSTANT) {
        return NULL;
    }
    int64_t since = instant - FIRST_INSTANT;    /* so that nothing is negative */
    int64_t seconds = since / MICROSECONDS;
    int year, month, day, of_day = (int)(seconds % DAY_SECONDS);
    split_days(seconds / DAY_SECONDS + FIRST_DAY, &year, &month, &day);
    return API(state)->DateTime_FromDateAndTimeAndFold(
        year, month, day, of_day / 3600, of_day / 60 % 60, of_day % 60,
        (int)(since % MICROSECONDS), zone, fold, API(state)->DateTimeType);
}

/* The 8 bytes of what an exact datetime's clock shows. */
static void
put_datetime(Writer *w, PyObject *value)
{
    int64_t days = join_days(PyDateTime_GET_YEAR(value), PyDateTime_GET_MONTH(value),
                             PyDateTime_GET_DAY(value));
    int64_t seconds = days * DAY_SECONDS + PyDateTime_DATE_GET_HOUR(value) * 3600
                      + PyDateTime_DATE_GET_MINUTE(value) * 60
                      + PyDateTime_DATE_GET_SECOND(value);
    int64_t instant = seconds * MICROSECONDS + PyDateTime_DATE_GET_MICROSECOND(value);
    zap_put(w, (uint64_t)instant ^ SIGN, 8);
}

PyObject *
zap_read_timestamp(Reader *r)
{
    if (zap_left(r) < 8) {
        return NULL;
    }
    r->at += 8;
    return make_datetime(r->state, r->at - 8, API(r->state)->TimeZone_UTC, 0);
}

int
zap_write_timestamp(Writer *w, PyObject *value)
{
    PyDateTime_CAPI *api = API(w->state);
    if (!Py_IS_TYPE(value, api->DateTimeType)
        || PyDateTime_DATE_GET_TZINFO(value) != api->TimeZone_UTC) {
        return 0;
    }
    put_datetime(w, value);
    return 1;
}

/* A local time, its fold, and the number of its zone. */
PyObject *
zap_read_zoned(Reader *r, const Value *v)
{
    const uint8_t *start = r->at;
    int64_t number;
    int is_unsigned;
    if (zap_left(r) < ZONED_HEAD || start[8] > 1) {
        return NULL;
    }
    r->at += ZONED_HEAD;
    if (!zap_read_varint(r, &number, &is_unsigned) || is_unsigned) {
        return NULL;
    }
    PyObject *key = PyLong_FromLongLong(number);
    PyObject *zone = key == NULL ? NULL : PyDict_GetItemWithError(v->first, key);
    Py_XDECREF(key);
    return zone == NULL ? NULL : make_datetime(r->state, start, zone, start[8]);
}

int
zap_write_zoned(Writer *w, const Value *v, PyObject *value)
{
    if (!Py_IS_TYPE(value, API(w->state)->DateTimeType)) {
        return 0;
    }
    PyObject *number = PyDict_GetItemWithError(v->second, PyDateTime_DATE_GET_TZINFO(value));
    if (number == NULL || !PyBytes_CheckExact(number)) {
        return 0;
    }
    put_datetime(w, value);
    *w->at++ = PyDateTime_DATE_GET_FOLD(value);
    return zap_write_bytes(w, PyBytes_AS_STRING(number), PyBytes_GET_SIZE(number));
}

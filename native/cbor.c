/* Deterministic CBOR of plain data, as zapdb/values/cbor.py defines it: one form for each value. */

#include <float.h>
#include <math.h>

#include "native.h"

#define MAJOR_NEGATIVE 0x20
#define MAJOR_TEXT 0x60
#define MAJOR_LIST 0x80
#define MAJOR_MAP 0xA0
#define MAJOR_MASK 0xE0
#define IN_FIRST_BYTE 24        /* arguments below it are in the head's first byte */
#define NO 0xF4
#define YES 0xF5
#define NOTHING 0xF6
#define HALF 0xF9
#define SINGLE 0xFA
#define DOUBLE 0xFB
#define HALF_END 65520.0        /* what rounds to no half */

/* ---- reading -------------------------------------------------------------------------------- */

/* The argument of the head at the place, which must be in its shortest form. */
static int
read_argument(Reader *r, uint64_t *argument)
{
    const uint8_t *p = r->at;
    if (p >= r->end) {
        return 0;
    }
    int low = *p++ & 31;
    if (low < IN_FIRST_BYTE) {
        *argument = low;
        r->at = p;
        return 1;
    }
    if (low > IN_FIRST_BYTE + 3) {
        return 0;
    }
    int size = 1 << (low - IN_FIRST_BYTE);
    if (r->end - p < size) {
        return 0;
    }
    *argument = zap_big_endian(p, size);
    r->at = p + size;
    return *argument >= (size == 1 ? IN_FIRST_BYTE : (uint64_t)1 << (4 * size));
}

static int
is_minus_zero(double value)
{
    return value == 0.0 && signbit(value);
}

static int
is_half(double value)
{
    char half[2];
    if (fabs(value) >= HALF_END) {
        return 0;
    }
    return PyFloat_Pack2(value, half, 0) == 0 && PyFloat_Unpack2(half, 0) == value;
}

static int
is_single(double value)
{
    return fabs(value) <= FLT_MAX && (double)(float)value == value;
}

static PyObject *
read_float(Reader *r)
{
    const char *p = (const char *)r->at + 1;
    int head = *r->at, size = 1 << (head - HALF + 1);
    double value;
    if (zap_left(r) < 1 + size) {
        return NULL;
    }
    if (head == HALF) {
        value = PyFloat_Unpack2(p, 0);
    }
    else if (head == SINGLE) {
        value = PyFloat_Unpack4(p, 0);
        if (is_half(value)) {
            return NULL;
        }
    }
    else {
        value = PyFloat_Unpack8(p, 0);
        if (is_single(value)) {
            return NULL;
        }
    }
    if (!isfinite(value) || is_minus_zero(value)) {
        return NULL;
    }
    r->at += 1 + size;
    return PyFloat_FromDouble(value);
}

/* A text as an object's key: the same few come again and again. */
static PyObject *
read_key(Reader *r, const uint8_t *bytes, Py_ssize_t size)
{
    if (size == 0 || size > ZAP_KNOWN_KEY_MAX) {
        return zap_text(bytes, size);
    }
    uint32_t hash = 2166136261u;        /* FNV-1a */
    for (Py_ssize_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * 16777619u;
    }
    PyObject **known = &r->state->known_keys[hash % ZAP_KNOWN_KEYS];
    PyObject *key = *known;
    if (key != NULL && PyUnicode_GET_LENGTH(key) == size
        && memcmp(PyUnicode_1BYTE_DATA(key), bytes, size) == 0) {
        return Py_NewRef(key);
    }
    key = zap_text(bytes, size);
    if (key != NULL && PyUnicode_IS_ASCII(key)) {
        Py_XSETREF(*known, Py_NewRef(key));
    }
    return key;
}

static PyObject *
read_list(Reader *r, uint64_t count, int depth)
{
    if (depth == 0 || count > (uint64_t)zap_left(r)) {  /* an item has at least one byte */
        return NULL;
    }
    Py_ssize_t at_once = count <= ZAP_SMALL_LIST ? (Py_ssize_t)count : 0;
    PyObject *list = PyList_New(at_once);
    for (uint64_t i = 0; list != NULL && i < count; i++) {
        PyObject *item = zap_read_cbor(r, depth - 1);
        if (item != NULL && at_once) {
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
            continue;
        }
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *
read_map(Reader *r, uint64_t count, int depth)
{
    const uint8_t *last = NULL;
    uint64_t last_size = 0;
    if (depth == 0) {
        return NULL;
    }
    PyObject *map = PyDict_New();
    for (uint64_t i = 0; map != NULL && i < count; i++) {
        uint64_t size;
        if (zap_left(r) == 0 || (*r->at & MAJOR_MASK) != MAJOR_TEXT || !read_argument(r, &size)
            || size > (uint64_t)zap_left(r)) {
            goto decline;
        }
        const uint8_t *bytes = r->at;
        if (last != NULL
            && (size < last_size
                || (size == last_size && memcmp(bytes, last, (size_t)size) <= 0))) {
            goto decline;
        }
        last = bytes;
        last_size = size;
        r->at += size;
        PyObject *key = read_key(r, bytes, (Py_ssize_t)size);
        PyObject *item = key == NULL ? NULL : zap_read_cbor(r, depth - 1);
        int is_set = item != NULL && PyDict_SetItem(map, key, item) == 0;
        Py_XDECREF(key);
        Py_XDECREF(item);
        if (!is_set) {
            goto decline;
        }
    }
    return map;

decline:
    Py_DECREF(map);
    return NULL;
}

/* Reads an item; containers may be nested `depth` deep. */
PyObject *
zap_read_cbor(Reader *r, int depth)
{
    uint64_t argument;
    if (zap_left(r) == 0) {
        return NULL;
    }
    int head = *r->at;
    if (head >= HALF && head <= DOUBLE) {
        return read_float(r);
    }
    if (head >= NO && head <= NOTHING) {
        r->at++;
        return Py_NewRef(head == NOTHING ? Py_None : head == YES ? Py_True : Py_False);
    }
    if (!read_argument(r, &argument)) {
        return NULL;
    }
    switch (head & MAJOR_MASK) {
        case 0:
            return PyLong_FromUnsignedLongLong(argument);
        case MAJOR_NEGATIVE: {
            if (argument <= INT64_MAX) {
                return PyLong_FromLongLong(-1 - (int64_t)argument);
            }
            PyObject *inverse = PyLong_FromUnsignedLongLong(argument);
            PyObject *value = inverse == NULL ? NULL : PyNumber_Invert(inverse);
            Py_XDECREF(inverse);
            return value;
        }
        case MAJOR_TEXT: {
            if (argument > (uint64_t)zap_left(r)) {
                return NULL;
            }
            const uint8_t *bytes = r->at;
            r->at += argument;
            return zap_text(bytes, (Py_ssize_t)argument);
        }
        case MAJOR_LIST:
            return read_list(r, argument, depth);
        case MAJOR_MAP:
            return read_map(r, argument, depth);
        default:
            return NULL;
    }
}

/* ---- writing --------------------------------------------------------------------------------

   Nothing here runs Python code or lets another thread run, so containers stay as they are. */

/* The caller has reserved ZAP_VARINT_MAX bytes. */
static void
put_head(Writer *w, int major, uint64_t argument)
{
    if (argument < IN_FIRST_BYTE) {
        *w->at++ = (uint8_t)(major | (int)argument);
        return;
    }
    int log = argument < 1 << 8 ? 0 : argument < 1 << 16 ? 1 : argument < (uint64_t)1 << 32 ? 2 : 3;
    *w->at++ = (uint8_t)(major | (IN_FIRST_BYTE + log));
    zap_put(w, argument, 1 << log);
}

static int
write_text(Writer *w, PyObject *text, Py_ssize_t size)
{
    if (size < 0 || !zap_reserve(w, ZAP_VARINT_MAX)) {
        return 0;
    }
    put_head(w, MAJOR_TEXT, (uint64_t)size);
    return zap_write_utf8(w, text, size);
}

static int
write_integer(Writer *w, PyObject *value)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (!overflow) {
        put_head(w, number < 0 ? MAJOR_NEGATIVE : 0,
                 number < 0 ? ~(uint64_t)number : (uint64_t)number);
        return 1;
    }
    PyObject *positive = overflow > 0 ? Py_NewRef(value) : PyNumber_Invert(value);
    if (positive == NULL) {
        return 0;
    }
    unsigned long long argument = PyLong_AsUnsignedLongLong(positive);
    Py_DECREF(positive);
    if (argument == (unsigned long long)-1 && PyErr_Occurred()) {
        return 0;
    }
    put_head(w, overflow > 0 ? 0 : MAJOR_NEGATIVE, argument);
    return 1;
}

static int
write_float(Writer *w, double value)
{
    if (!isfinite(value) || is_minus_zero(value)) {
        return 0;
    }
    char *p = (char *)w->at + 1;
    if (is_half(value)) {
        *w->at = HALF;
        w->at += 3;
        return PyFloat_Pack2(value, p, 0) == 0;
    }
    if (is_single(value)) {
        *w->at = SINGLE;
        w->at += 5;
        return PyFloat_Pack4(value, p, 0) == 0;
    }
    *w->at = DOUBLE;
    w->at += 9;
    return PyFloat_Pack8(value, p, 0) == 0;
}

typedef struct {
    PyObject *key, *value;
    Py_ssize_t size;            /* of the key's UTF-8 */
} Item;

/* As their UTF-8 behind its head compares: code points are ordered as their UTF-8. */
static int
compare_items(const void *left, const void *right)
{
    const Item *l = left, *r = right;
    if (l->size != r->size) {
        return l->size < r->size ? -1 : 1;
    }
    return PyUnicode_Compare(l->key, r->key);
}

static int
take_items(PyObject *map, Item *items)
{
    PyObject *key, *value;
    Py_ssize_t position = 0, count = 0;
    int is_sorted = 1;
    while (PyDict_Next(map, &position, &key, &value)) {
        if (!PyUnicode_CheckExact(key)) {
            return 0;
        }
        Item item = {key, value, zap_utf8_size(key)};
        if (item.size < 0) {
            return 0;
        }
        items[count] = item;
        is_sorted = is_sorted && (count == 0 || compare_items(&items[count - 1], &item) < 0);
        count++;
    }
    if (!is_sorted) {
        qsort(items, (size_t)count, sizeof(Item), compare_items);
    }
    return 1;
}

static int
write_map(Writer *w, PyObject *map, int depth)
{
    Item small[ZAP_SMALL_MAP], *items = small;
    Py_ssize_t count = PyDict_GET_SIZE(map);
    if (count > ZAP_SMALL_MAP) {
        items = PyMem_Malloc((size_t)count * sizeof(Item));
        if (items == NULL) {
            return 0;
        }
    }
    int is_done = take_items(map, items);
    if (is_done) {
        put_head(w, MAJOR_MAP, (uint64_t)count);
    }
    for (Py_ssize_t i = 0; is_done && i < count; i++) {
        is_done = write_text(w, items[i].key, items[i].size)
                  && zap_write_cbor(w, items[i].value, depth - 1);
    }
    if (items != small) {
        PyMem_Free(items);
    }
    return is_done;
}

/* Writes a value of exact types; containers may be nested `depth` deep. */
int
zap_write_cbor(Writer *w, PyObject *value, int depth)
{
    if (!zap_reserve(w, ZAP_VARINT_MAX)) {
        return 0;
    }
    if (PyUnicode_CheckExact(value)) {
        return write_text(w, value, zap_utf8_size(value));
    }
    if (PyLong_CheckExact(value)) {
        return write_integer(w, value);
    }
    if (value == Py_None || value == Py_True || value == Py_False) {
        *w->at++ = value == Py_None ? NOTHING : value == Py_True ? YES : NO;
        return 1;
    }
    if (PyFloat_CheckExact(value)) {
        return write_float(w, PyFloat_AS_DOUBLE(value));
    }
    if (PyDict_CheckExact(value)) {
        return depth > 0 && write_map(w, value, depth);
    }
    if (!PyList_CheckExact(value) || depth == 0) {
        return 0;
    }
    Py_ssize_t count = PyList_GET_SIZE(value);
    put_head(w, MAJOR_LIST, (uint64_t)count);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!zap_write_cbor(w, PyList_GET_ITEM(value, i), depth - 1)) {
            return 0;
        }
    }
    return 1;
}

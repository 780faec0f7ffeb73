/* Deterministic CBOR of plain data, as zapdb/values/cbor.py defines it: one form for each value. */

#include <float.h>
#include <math.h>

#include "native.h"

#define MAJOR_NEGATIVE 0x20
#define MAJOR_TEXT 0x60
#define MAJOR_LIST 0x80
#define MAJOR_MAP 0xA0
#define MAJOR_SIMPLE 0xE0
#define ARGUMENT_MASK 31
#define IN_FIRST_BYTE 24        /* arguments below it are in the head's first byte */
#define NO 20                   /* arguments of MAJOR_SIMPLE */
#define YES 21
#define NOTHING 22
#define HALF 25
#define DOUBLE 27
#define HALF_END 65520.0        /* what rounds to no half */

/* Packs a number in its only form. Returns its size; 0 for a number that has none. */
static int
pack_float(double value, char *bytes)
{
    if (!isfinite(value) || (value == 0.0 && signbit(value))) {
        return 0;
    }
    if (fabs(value) < HALF_END && PyFloat_Pack2(value, bytes, 0) == 0
        && PyFloat_Unpack2(bytes, 0) == value) {
        return 2;
    }
    if (fabs(value) <= FLT_MAX && (double)(float)value == value) {
        return PyFloat_Pack4(value, bytes, 0) == 0 ? 4 : 0;
    }
    return PyFloat_Pack8(value, bytes, 0) == 0 ? 8 : 0;
}

/* Reads a head in its shortest form. Returns its major type; -1 if there is none. */
static int
read_head(Reader *r, uint64_t *argument)
{
    int head = (int)zap_read_number(r, 1), major = head & ~ARGUMENT_MASK;
    int log = (head & ARGUMENT_MASK) - IN_FIRST_BYTE;
    *argument = head & ARGUMENT_MASK;
    if (log >= 0 && log <= 3 && major != MAJOR_SIMPLE) {
        *argument = zap_read_number(r, 1 << log);
        r->is_wrong |= *argument < (log == 0 ? IN_FIRST_BYTE : (uint64_t)1 << (4 << log));
    }
    return r->is_wrong || (log > 3 && major != MAJOR_SIMPLE) ? -1 : major;
}

static PyObject *
read_simple(Reader *r, int argument)
{
    if (argument >= NO && argument <= NOTHING) {
        return Py_NewRef(argument == NOTHING ? Py_None : argument == YES ? Py_True : Py_False);
    }
    char form[8];
    int size = argument >= HALF && argument <= DOUBLE ? 2 << (argument - HALF) : 0;
    const char *p = (const char *)zap_take(r, size);
    if (p == NULL || size == 0) {
        return NULL;
    }
    double value = argument == HALF     ? PyFloat_Unpack2(p, 0)
                   : argument == DOUBLE ? PyFloat_Unpack8(p, 0)
                                        : PyFloat_Unpack4(p, 0);
    return pack_float(value, form) == size ? PyFloat_FromDouble(value) : NULL;
}

/* A text as an object's key: the same few come again and again. */
static PyObject *
read_key(Reader *r, const uint8_t *bytes, Py_ssize_t size)
{
    size_t place = size == 0 ? 0 : (31 * bytes[0] + 7 * bytes[size - 1] + size) % ZAP_KNOWN_KEYS;
    PyObject *key = r->state->known_keys[place];
    if (key != NULL && PyUnicode_GET_LENGTH(key) == size
        && memcmp(PyUnicode_1BYTE_DATA(key), bytes, size) == 0) {
        return Py_NewRef(key);
    }
    key = zap_text(bytes, size);
    if (key != NULL && PyUnicode_IS_ASCII(key) && size <= ZAP_KNOWN_KEY_MAX) {
        Py_XSETREF(r->state->known_keys[place], Py_NewRef(key));
    }
    return key;
}

static PyObject *
read_list(Reader *r, uint64_t count, int depth)
{
    PyObject *list = depth == 0 ? NULL : PyList_New(0);
    for (; list != NULL && count > 0; count--) {
        PyObject *item = zap_read_cbor(r, depth - 1);
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
    const uint8_t *last = NULL, *last_end = NULL;
    uint64_t size;
    PyObject *map = depth == 0 ? NULL : PyDict_New();
    for (; map != NULL && count > 0; count--) {
        PyObject *key = NULL, *item = NULL;
        const uint8_t *start = r->at;
        const uint8_t *bytes = read_head(r, &size) == MAJOR_TEXT ? zap_take(r, size) : NULL;
        Py_ssize_t shorter = Py_MIN(r->at - start, last_end - last);
        if (bytes != NULL && (last == NULL || memcmp(start, last, (size_t)shorter) > 0)) {
            last = start;
            last_end = r->at;
            key = read_key(r, bytes, (Py_ssize_t)size);
            item = key == NULL ? NULL : zap_read_cbor(r, depth - 1);
        }
        if (item == NULL || PyDict_SetItem(map, key, item) < 0) {
            Py_CLEAR(map);
        }
        Py_XDECREF(key);
        Py_XDECREF(item);
    }
    return map;
}

/* Reads an item; containers may be nested `depth` deep. */
PyObject *
zap_read_cbor(Reader *r, int depth)
{
    uint64_t argument;
    const char *bytes;
    switch (read_head(r, &argument)) {
    case 0: return PyLong_FromUnsignedLongLong(argument);
    case MAJOR_NEGATIVE:
        return argument > INT64_MAX ? NULL : PyLong_FromLongLong(~(int64_t)argument);
    case MAJOR_TEXT:
        bytes = (const char *)zap_take(r, argument);
        return bytes == NULL ? NULL : zap_text(bytes, (Py_ssize_t)argument);
    case MAJOR_LIST: return read_list(r, argument, depth);
    case MAJOR_MAP: return read_map(r, argument, depth);
    case MAJOR_SIMPLE: return read_simple(r, (int)argument);
    default: return NULL;
    }
}

/* Writing runs no Python code and lets no other thread run, so containers stay as they are. */

/* The caller has reserved ZAP_SCALAR_MAX bytes. */
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
write_text(Writer *w, const Text *text)
{
    if (!zap_reserve(w, ZAP_SCALAR_MAX)) {
        return 0;
    }
    put_head(w, MAJOR_TEXT, (uint64_t)text->size);
    return zap_write_bytes(w, text->bytes, text->size);
}

typedef struct {
    Text key;
    PyObject *value;
} Item;

/* As the UTF-8 of keys compares behind its head. */
static int
compare_items(const void *left, const void *right)
{
    const Text *l = &((const Item *)left)->key, *r = &((const Item *)right)->key;
    if (l->size != r->size) {
        return l->size < r->size ? -1 : 1;
    }
    return memcmp(l->bytes, r->bytes, (size_t)l->size);
}

static int
write_map(Writer *w, PyObject *map, int depth)
{
    PyObject *key;
    Py_ssize_t position = 0, taken = 0, size = PyDict_GET_SIZE(map);
    Item *items = PyMem_Malloc((size_t)size * sizeof(Item));
    int is_done = items != NULL, is_sorted = 1;
    while (is_done && PyDict_Next(map, &position, &key, &items[taken].value)) {
        is_done = zap_open_text(key, 0, &items[taken].key);
        is_sorted = is_sorted && is_done
                    && (taken == 0 || compare_items(&items[taken - 1], &items[taken]) < 0);
        taken++;
    }
    if (is_done && !is_sorted) {
        qsort(items, (size_t)taken, sizeof(Item), compare_items);
    }
    put_head(w, MAJOR_MAP, (uint64_t)size);
    for (Py_ssize_t i = 0; i < taken; i++) {
        is_done = is_done && write_text(w, &items[i].key)
                  && zap_write_cbor(w, items[i].value, depth - 1);
        Py_XDECREF(items[i].key.owner);
    }
    PyMem_Free(items);
    return is_done;
}

/* Writes a value of exact types; containers may be nested `depth` deep. */
int
zap_write_cbor(Writer *w, PyObject *value, int depth)
{
    Text text;
    if (!zap_reserve(w, ZAP_SCALAR_MAX)) {
        return 0;
    }
    if (PyUnicode_CheckExact(value)) {
        int is_done = zap_open_text(value, 0, &text) && write_text(w, &text);
        Py_XDECREF(text.owner);
        return is_done;
    }
    if (PyLong_CheckExact(value)) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        put_head(w, number < 0 ? MAJOR_NEGATIVE : 0, (uint64_t)(number < 0 ? ~number : number));
        return !overflow;
    }
    if (value == Py_None || value == Py_True || value == Py_False) {
        int argument = value == Py_None ? NOTHING : value == Py_True ? YES : NO;
        *w->at++ = (uint8_t)(MAJOR_SIMPLE | argument);
        return 1;
    }
    if (PyFloat_CheckExact(value)) {
        int size = pack_float(PyFloat_AS_DOUBLE(value), (char *)w->at + 1);
        *w->at = (uint8_t)(MAJOR_SIMPLE | (HALF + (size > 2) + (size > 4)));
        w->at += 1 + size;
        return size > 0;
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

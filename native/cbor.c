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

/* A key, which is behind the last one as its bytes compare. The length at their beginning differs
   before either of both ends, if the lengths do. */
static PyObject *
read_key(Reader *r, const uint8_t **last)
{
    uint64_t size;
    const uint8_t *start = r->at;
    const uint8_t *bytes = read_head(r, &size) == MAJOR_TEXT ? zap_take(r, size) : NULL;
    if (bytes == NULL || (*last != NULL && memcmp(start, *last, r->at - start) <= 0)) {
        return NULL;
    }
    *last = start;
    return zap_text(bytes, (Py_ssize_t)size);
}

static PyObject *
read_container(Reader *r, int is_map, uint64_t count, int depth)
{
    const uint8_t *last = NULL;
    PyObject *made = depth == 0 ? NULL : is_map ? PyDict_New() : PyList_New(0);
    for (; made != NULL && count > 0; count--) {
        PyObject *key = is_map ? read_key(r, &last) : NULL;
        PyObject *item = is_map && key == NULL ? NULL : zap_read_cbor(r, depth - 1);
        if (item == NULL
            || (is_map ? PyDict_SetItem(made, key, item) : PyList_Append(made, item)) < 0) {
            Py_CLEAR(made);
        }
        Py_XDECREF(key);
        Py_XDECREF(item);
    }
    return made;
}

/* Reads an item; containers may be nested `depth` deep. */
PyObject *
zap_read_cbor(Reader *r, int depth)
{
    uint64_t argument;
    const uint8_t *bytes;
    int major = read_head(r, &argument);
    switch (major) {
    case 0: return PyLong_FromUnsignedLongLong(argument);
    case MAJOR_NEGATIVE:
        return argument > INT64_MAX ? NULL : PyLong_FromLongLong(~(int64_t)argument);
    case MAJOR_TEXT:
        bytes = zap_take(r, argument);
        return bytes == NULL ? NULL : zap_text(bytes, (Py_ssize_t)argument);
    case MAJOR_LIST: case MAJOR_MAP:
        return read_container(r, major == MAJOR_MAP, argument, depth);
    case MAJOR_SIMPLE: return read_simple(r, (int)argument);
    default: return NULL;
    }
}

/* What is refused allocates, an allocation may collect, and a collection runs finalizers, which may
   change any container, and end what only it kept. So what is written has an owner here. */

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

typedef struct {
    PyObject *name, *value;                     /* owned, before anything is allocated */
    Text key;
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

static void
write_map(Writer *w, PyObject *map, int depth)
{
    Py_ssize_t position = 0, size = PyDict_GET_SIZE(map);
    Item *items = PyMem_Malloc((size_t)size * sizeof(Item)), *end = items;
    int is_sorted = 1;
    w->is_wrong |= items == NULL;
    while (items != NULL && PyDict_Next(map, &position, &end->name, &end->value)) {
        Py_INCREF(end->name);
        Py_INCREF(end->value);
        end++;
    }
    for (Item *item = items; item < end; item++) {
        item->key = zap_open_text(w, item->name);
        is_sorted &= item == items || compare_items(item - 1, item) < 0;
    }
    if (!is_sorted) {
        qsort(items, (size_t)size, sizeof(Item), compare_items);
    }
    put_head(w, MAJOR_MAP, (uint64_t)size);
    for (Item *item = items; item < end; item++) {
        zap_reserve(w, ZAP_SCALAR_MAX);
        put_head(w, MAJOR_TEXT, (uint64_t)item->key.size);
        zap_write_text(w, item->key);
        zap_write_cbor(w, item->value, depth - 1);
        Py_DECREF(item->name);
        Py_DECREF(item->value);
    }
    PyMem_Free(items);
}

/* Writes a value of exact types; containers may be nested `depth` deep. */
void
zap_write_cbor(Writer *w, PyObject *value, int depth)
{
    zap_reserve(w, ZAP_SCALAR_MAX);
    if (w->is_wrong) {
        return;
    }
    if (PyUnicode_CheckExact(value)) {
        Text text = zap_open_text(w, value);
        put_head(w, MAJOR_TEXT, (uint64_t)text.size);
        zap_write_text(w, text);
    }
    else if (PyLong_CheckExact(value)) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        put_head(w, number < 0 ? MAJOR_NEGATIVE : 0, (uint64_t)(number < 0 ? ~number : number));
        w->is_wrong |= overflow != 0;
    }
    else if (value == Py_None || PyBool_Check(value)) {
        put_head(w, MAJOR_SIMPLE, value == Py_None ? NOTHING : value == Py_True ? YES : NO);
    }
    else if (PyFloat_CheckExact(value)) {
        int size = pack_float(PyFloat_AS_DOUBLE(value), (char *)w->at + 1);
        *w->at = (uint8_t)(MAJOR_SIMPLE | (HALF + (size > 2) + (size > 4)));
        w->at += 1 + size;
        w->is_wrong |= size == 0;
    }
    else if (PyDict_CheckExact(value) && depth > 0) {
        write_map(w, value, depth);
    }
    else if (PyList_CheckExact(value) && depth > 0) {
        Py_ssize_t size = PyList_GET_SIZE(value);
        put_head(w, MAJOR_LIST, (uint64_t)size);
        for (Py_ssize_t i = 0; i < size && !w->is_wrong; i++) {
            PyObject *item = Py_NewRef(PyList_GET_ITEM(value, i));
            zap_write_cbor(w, item, depth - 1);
            Py_DECREF(item);
            w->is_wrong |= PyList_GET_SIZE(value) != size;
        }
    }
    else {
        w->is_wrong |= 1;
    }
}

/* The parts of records, structs, lists and keys, and values that have parts, a length or an end. */

#include "native.h"

#define ESCAPED_END 1           /* in two bytes, behind a text without zeros */

static PyObject *read_value(Reader *, const Field *);
static void write_value(Writer *, const Field *, PyObject *);

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

/* A struct, a UUID, or the key of another record: a tuple. */
static PyObject *
read_object(Reader *r, const Field *f)
{
    const uint8_t *start = r->at;
    PyTypeObject *type = f->parts->type;
    PyObject *object = type == &PyTuple_Type ? PyTuple_New(f->parts->count)
                                             : type->tp_alloc(type, 0);
    int is_done = object != NULL && zap_read_parts(r, f->parts, object);
    if (!is_done || (f->kind == ZAP_KEY && r->at - start > ZAP_KEY_MAX)) {
        Py_CLEAR(object);
    }
    return object;
}

/* A text, or a value with parts. */
static PyObject *
read_extent(Reader *r, const Field *f)
{
    const uint8_t *end = r->end;
    int has_length = f->kind >= ZAP_STRING, is_escaped = f->kind < ZAP_KEY;
    const uint8_t *zero = is_escaped ? memchr(r->at, 0, end - r->at) : NULL;
    int64_t size = has_length ? zap_read_varint(r) : (zero == NULL ? end : zero) - r->at;
    PyObject *value;
    if (r->is_wrong || size < 0 || size > f->number || size > end - r->at) {
        return NULL;
    }
    r->end = r->at + size;
    switch (f->kind) {
    case ZAP_JSON: value = zap_read_cbor(r, ZAP_DEPTH_MAX); break;
    case ZAP_LIST: value = read_list(r, f->parts->fields); break;
    case ZAP_STRUCT: case ZAP_KEY: value = read_object(r, f); break;
    case ZAP_EXTENT: value = zap_take(r, size) == NULL ? NULL : Py_NewRef(Py_True); break;
    case ZAP_BINARY: case ZAP_ESCAPED_BINARY:
        value = PyBytes_FromStringAndSize((const char *)zap_take(r, size), size);
        break;
    default: value = zap_text(zap_take(r, size), size);
    }
    r->is_wrong |= has_length && r->at != r->end;
    r->end = end;
    r->is_wrong |= is_escaped && zap_read_number(r, 2) != ESCAPED_END;
    return value;
}

/* Tries Python's own function, too. */
static PyObject *
read_value(Reader *r, const Field *f)
{
    Py_ssize_t after, at = r->at - r->start;
    PyObject *value = f->kind < ZAP_ESCAPED_STRING ? zap_read_scalar(r, f) : read_extent(r, f);
    if (value != NULL && !r->is_wrong) {
        return value;
    }
    Py_CLEAR(value);
    PyObject *pair = zap_forget() ? PyObject_CallFunction(f->decode, "On", r->data, at) : NULL;
    int is_read = pair != NULL && PyArg_ParseTuple(pair, "On", &value, &after) && after > at
                  && after <= r->end - r->start;
    if (is_read) {
        r->at = r->start + after;
        r->is_wrong = 0;
        r->has_blob |= f->encode == Py_None;
    }
    value = is_read ? Py_NewRef(value) : NULL;
    Py_XDECREF(pair);
    return value;
}

/* Reads fields into an object that nobody has yet, or drops their values. */
int
zap_read_parts(Reader *r, const Plan *plan, PyObject *object)
{
    int size = (plan->optional + 7) / 8, used = plan->optional & 7;
    const uint8_t *bits = zap_take(r, size);
    if (bits == NULL || (size > 0 && used && bits[size - 1] >> used)) {
        return 0;
    }
    for (const Field *f = plan->fields; f < plan->fields + plan->count; f++) {
        int is_here = f->bit < 0 || (bits[f->bit >> 3] >> (f->bit & 7) & 1);
        PyObject *value = is_here ? read_value(r, f) : Py_NewRef(Py_None);
        int is_null_though_here = is_here && f->bit >= 0 && value == Py_None;
        if (f->offset >= 0) {
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

static void
write_list(Writer *w, const Field *item, PyObject *items)
{
    w->is_wrong |= !PyList_CheckExact(items) && !PyTuple_CheckExact(items);
    for (Py_ssize_t i = 0; !w->is_wrong && i < PySequence_Fast_GET_SIZE(items); i++) {
        PyObject *value = Py_NewRef(PySequence_Fast_GET_ITEM(items, i));
        write_value(w, item, value);
        Py_DECREF(value);
    }
}

/* A struct, from an object or a dict; a UUID; or the key of another record, from a tuple. */
static void
write_object(Writer *w, const Field *f, PyObject *value)
{
    size_t begin = w->at - w->start;
    const Plan *parts = f->parts;
    int is_dict = f->kind == ZAP_STRUCT && PyDict_CheckExact(value);
    int is_whole = !PyTuple_Check(value) || PyTuple_GET_SIZE(value) == parts->count;
    int is_known = is_dict || (Py_IS_TYPE(value, parts->type) && is_whole);
    Py_ssize_t given = is_known ? zap_write_parts(w, parts, value, NULL) : 0;
    w->is_wrong |= !is_known || (is_dict && given != PyDict_GET_SIZE(value));
    w->is_wrong |= f->kind == ZAP_KEY && (w->at - w->start) - begin > ZAP_KEY_MAX;
}

/* Tries Python's own function, too. */
static void
write_value(Writer *w, const Field *f, PyObject *value)
{
    size_t size, begin = w->at - w->start;
    zap_reserve(w, ZAP_SCALAR_MAX);
    w->at += f->kind >= ZAP_STRING;             /* see zap_close_extent() */
    switch (f->kind) {
    case ZAP_STRING: case ZAP_ESCAPED_STRING: zap_write_text(w, zap_open_text(w, value)); break;
    case ZAP_BINARY: case ZAP_ESCAPED_BINARY: zap_write_object(w, value); break;
    case ZAP_JSON: zap_write_cbor(w, value, ZAP_DEPTH_MAX); break;
    case ZAP_LIST: write_list(w, f->parts->fields, value); break;
    case ZAP_STRUCT: case ZAP_KEY: write_object(w, f, value); break;
    default: zap_write_scalar(w, f, value);
    }
    if (f->kind >= ZAP_STRING) {
        zap_close_extent(w, begin, f->number);
    }
    else if (f->kind >= ZAP_ESCAPED_STRING && f->kind < ZAP_KEY && !w->is_wrong) {
        size = (w->at - w->start) - begin;
        w->is_wrong |= size > (size_t)f->number || memchr(w->at - size, 0, size) != NULL;
        zap_reserve(w, ZAP_SCALAR_MAX);
        zap_put(w, ESCAPED_END, 2);
    }
    if (w->is_wrong == 1 && f->encode != Py_None && zap_forget()) {
        w->at = w->start + begin;
        w->is_wrong = 0;
        PyObject *bytes = PyObject_CallOneArg(f->encode, value);
        zap_write_object(w, bytes);
        Py_XDECREF(bytes);
    }
}

/* Writes fields, which are these values, or parts of a dict or another object. Returns how many of
   them are given, and not defaults. */
Py_ssize_t
zap_write_parts(Writer *w, const Plan *plan, PyObject *source, PyObject *const *values)
{
    size_t bits = w->at - w->start, size = (plan->optional + 7) / 8;
    Py_ssize_t known = 0;
    int is_dict = values == NULL && PyDict_CheckExact(source);
    for (size_t i = 0; i < size; i++) {         /* no field is there yet */
        zap_write_bytes(w, "", 1);
    }
    for (Py_ssize_t i = 0; !w->is_wrong && i < plan->count; i++) {
        const Field *f = &plan->fields[i];
        size_t begin = w->at - w->start;
        PyObject *value = values != NULL ? Py_NewRef(values[i])
                          : is_dict ? Py_XNewRef(PyDict_GetItemWithError(source, f->name))
                          : f->offset < 0 ? PyObject_GetAttr(source, f->name)
                                          : Py_XNewRef(ZAP_SLOT(source, f->offset));
        known += value != NULL;
        if (value == NULL && is_dict && !PyErr_Occurred() && f->otherwise != Py_Ellipsis) {
            value = Py_NewRef(f->otherwise);
        }
        if (value == NULL) {
            w->is_wrong |= 1;
            break;
        }
        uint8_t is_present = value != Py_None || f->bit < 0;
        if (f->order != 0) {
            zap_write_bytes(w, &is_present, 1);
        }
        else if (f->bit >= 0) {
            w->start[bits + (f->bit >> 3)] |= (uint8_t)(is_present << (f->bit & 7));
        }
        if (is_present && !w->is_wrong) {
            write_value(w, f, value);
        }
        Py_DECREF(value);
        for (uint8_t *p = w->start + begin; f->order < 0 && p < w->at; p++) {
            *p = (uint8_t)~*p;
        }
    }
    return known;
}

/* The parts of records, structs, lists and keys, and those values that have parts or a length. */

#include "native.h"

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

/* A struct, or the key of another record: a tuple. */
static PyObject *
read_object(Reader *r, const Field *f)
{
    const uint8_t *start = r->at;
    const Plan *parts = f->parts;
    PyObject *object = f->kind == ZAP_KEY ? PyTuple_New(parts->count)
                                          : parts->type->tp_alloc(parts->type, 0);
    int is_done = object != NULL && zap_read_parts(r, parts, object);
    if (!is_done || (f->kind == ZAP_KEY && r->at - start > ZAP_KEY_MAX)) {
        Py_CLEAR(object);
    }
    return object;
}

/* A value behind its length. */
static PyObject *
read_extent(Reader *r, const Field *f)
{
    const uint8_t *end = r->end;
    int64_t size = zap_read_varint(r);
    PyObject *value;
    if (r->is_wrong || size < 0 || size > f->number || size > end - r->at) {
        return NULL;
    }
    r->end = r->at + size;
    switch (f->kind) {
    case ZAP_JSON: value = zap_read_cbor(r, ZAP_DEPTH_MAX); break;
    case ZAP_LIST: value = read_list(r, f->parts->fields); break;
    case ZAP_STRUCT: value = read_object(r, f); break;
    case ZAP_EXTENT: value = zap_take(r, size) == NULL ? NULL : Py_NewRef(Py_True); break;
    default: value = zap_text(zap_take(r, size), size, ZAP_IS_BINARY(f));
    }
    r->is_wrong |= r->at != r->end;
    r->end = end;
    return value;
}

/* Tries Python's own function, too. */
static PyObject *
read_value(Reader *r, const Field *f)
{
    Py_ssize_t after, at = r->at - r->start;
    PyObject *value = f->kind == ZAP_KEY      ? read_object(r, f)
                      : f->kind < ZAP_STRING ? zap_read_scalar(r, f)
                                             : read_extent(r, f);
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
    if (!PyList_CheckExact(items) && !PyTuple_CheckExact(items)) {
        w->is_wrong = 1;
        return;
    }
    for (Py_ssize_t i = 0; !w->is_wrong && i < PySequence_Fast_GET_SIZE(items); i++) {
        PyObject *value = Py_NewRef(PySequence_Fast_GET_ITEM(items, i));
        write_value(w, item, value);
        Py_DECREF(value);
    }
}

/* A struct, from an object or a dict; or the key of another record, from a tuple. */
static void
write_object(Writer *w, const Field *f, PyObject *value)
{
    size_t begin = w->at - w->start;
    const Plan *parts = f->parts;
    int is_key = f->kind == ZAP_KEY, is_dict = !is_key && PyDict_CheckExact(value);
    if ((!is_dict && !Py_IS_TYPE(value, parts->type))
        || (is_key && PyTuple_GET_SIZE(value) != parts->count)) {
        w->is_wrong = 1;
        return;
    }
    PyObject *const *values = is_key ? ((PyTupleObject *)value)->ob_item : NULL;
    Py_ssize_t known = zap_write_parts(w, parts, value, values);
    w->is_wrong |= is_dict && known != PyDict_GET_SIZE(value);
    w->is_wrong |= is_key && (w->at - w->start) - begin > ZAP_KEY_MAX;
}

static void
write_known(Writer *w, const Field *f, PyObject *value)
{
    size_t begin = w->at - w->start;
    switch (f->kind) {
    case ZAP_NAMED: return;
    case ZAP_KEY: write_object(w, f, value); return;
    case ZAP_JSON: w->at++; zap_write_cbor(w, value, ZAP_DEPTH_MAX); break;
    case ZAP_LIST: w->at++; write_list(w, f->parts->fields, value); break;
    case ZAP_STRUCT: w->at++; write_object(w, f, value); break;
    default: zap_write_scalar(w, f, value); return;
    }
    zap_close_extent(w, begin, f->number);
}

/* Tries Python's own function, too. */
static void
write_value(Writer *w, const Field *f, PyObject *value)
{
    size_t begin = w->at - w->start;
    zap_reserve(w, ZAP_SCALAR_MAX);
    write_known(w, f, value);
    if (w->is_wrong && !w->is_lost && f->encode != Py_None && zap_forget()) {
        w->at = w->start + begin;
        w->is_wrong = 0;
        PyObject *bytes = PyObject_CallOneArg(f->encode, value);
        zap_write_object(w, bytes);
        Py_XDECREF(bytes);
    }
}

/* A part that is given by itself, or of a dict, or its default; or of an object. */
static PyObject *
take_part(PyObject *source, PyObject *const *value, const Field *f, Py_ssize_t *known)
{
    *known += 1;
    if (value != NULL) {
        return Py_NewRef(*value);
    }
    if (!PyDict_CheckExact(source)) {
        return PyObject_GetAttr(source, f->name);
    }
    PyObject *found = PyDict_GetItemWithError(source, f->name);
    if (found == NULL && !PyErr_Occurred() && f->otherwise != Py_Ellipsis) {
        *known -= 1;
        found = f->otherwise;
    }
    return Py_XNewRef(found);
}

/* Writes fields, which are these values, or else of the source. Returns how many of them are given,
   and not defaults. */
Py_ssize_t
zap_write_parts(Writer *w, const Plan *plan, PyObject *source, PyObject *const *values)
{
    size_t bits = w->at - w->start, size = (plan->optional + 7) / 8;
    Py_ssize_t known = 0;
    zap_reserve(w, size);
    if (!w->is_wrong) {
        memset(w->at, 0, size);
        w->at += size;
    }
    for (Py_ssize_t i = 0; !w->is_wrong && i < plan->count; i++) {
        const Field *f = &plan->fields[i];
        size_t begin = w->at - w->start;
        PyObject *value = take_part(source, values == NULL ? NULL : &values[i], f, &known);
        uint8_t is_present = value != Py_None || f->bit < 0;
        if (value == NULL) {
            w->is_wrong = 1;
            break;
        }
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

/* Plan: how the records of one layout, or the keys of one index, are read and written.

   Its methods take the same arguments as the generated functions, and call them whenever they
   decline. A plan never changes, so it can be in a cycle of garbage only with something that does:
   like a tuple, it has nothing to clear. */

#include "native.h"
#include <structmember.h>

/* The result, or what Python's own function makes of the arguments if there is none. */
static PyObject *
or_python(const Plan *self, PyObject *result, Function function, PyObject *const *args,
          Py_ssize_t nargs)
{
    if (result != NULL || !zap_forget()) {
        return result;
    }
    return PyObject_Vectorcall(PyTuple_GET_ITEM(self->functions, function), args, nargs, NULL);
}

/* The same of what was written, if that is done. */
static PyObject *
written_or_python(const Plan *self, Writer *w, int is_done, Function function,
                  PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *written = NULL;
    if (is_done) {
        written = PyBytes_FromStringAndSize((const char *)w->start, w->at - w->start);
    }
    if (w->start != w->small) {
        PyMem_Free(w->start);
    }
    return or_python(self, written, function, args, nargs);
}

static void
open_writer(Writer *w, const Plan *self)
{
    w->state = self->state;
    w->start = w->at = w->small;
    w->end = w->small + sizeof(w->small);
}

static int
open_reader(Reader *r, const Plan *self, PyObject *data, Py_ssize_t at)
{
    if (!PyBytes_CheckExact(data) || at < 0 || at > PyBytes_GET_SIZE(data)) {
        return 0;
    }
    r->state = self->state;
    r->data = data;
    r->start = (const uint8_t *)PyBytes_AS_STRING(data);
    r->at = r->start + at;
    r->end = r->start + PyBytes_GET_SIZE(data);
    r->is_wrong = r->has_blob = 0;
    return 1;
}

/* The record, or NULL if that is for Python to read. */
static PyObject *
decode(const Plan *self, PyObject *key, PyObject *data, Py_ssize_t start, PyObject *attachments)
{
    Reader r;
    PyObject *record = self->type->tp_alloc(self->type, 0);
    int is_done = record != NULL;
    if (is_done && self->keys > 0) {
        is_done = open_reader(&r, self, key, 0) && r.end - r.start <= ZAP_KEY_MAX
                  && zap_read_parts(&r, self, 0, self->keys, record) && r.at == r.end;
    }
    is_done = is_done && open_reader(&r, self, data, start)
              && zap_read_parts(&r, self, self->keys, self->reach, record)
              && (self->reach < Py_SIZE(self) || r.at == r.end);
    if (!is_done) {
        Py_CLEAR(record);
    }
    else if (r.has_blob) {
        PyObject *args[2] = {record, attachments};
        PyObject *defer = PyTuple_GET_ITEM(self->functions, ZAP_DEFER);
        Py_SETREF(record, PyObject_Vectorcall(defer, args, 2, NULL));
    }
    return record;
}

/* decode(key, data, start, attachments) */
static PyObject *
plan_decode(Plan *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *record = NULL;
    if (nargs == 4) {
        record = decode(self, args[0], args[1], PyLong_AsSsize_t(args[2]), args[3]);
    }
    return or_python(self, record, ZAP_DECODE, args, nargs);
}

/* read_row(prefix, attachments, otherwise, (place, key, data)): the pair (key, record);
   `otherwise(key, data)` reads what does not begin with the prefix, or is declined. */
static PyObject *
plan_read_row(Plan *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4 || !PyBytes_CheckExact(args[0]) || !PyTuple_CheckExact(args[3])
        || PyTuple_GET_SIZE(args[3]) != 3) {
        PyErr_BadInternalCall();
        return NULL;
    }
    PyObject *const *pair = &PyTuple_GET_ITEM(args[3], 1), *data = pair[1], *record = NULL;
    Py_ssize_t size = PyBytes_GET_SIZE(args[0]);
    if (PyBytes_CheckExact(data) && PyBytes_GET_SIZE(data) >= size
        && memcmp(PyBytes_AS_STRING(data), PyBytes_AS_STRING(args[0]), (size_t)size) == 0) {
        record = decode(self, pair[0], data, size, args[1]);
    }
    if (record == NULL && zap_forget()) {
        record = PyObject_Vectorcall(args[2], pair, 2, NULL);
    }
    PyObject *found = record == NULL ? NULL : PyTuple_Pack(2, pair[0], record);
    Py_XDECREF(record);
    return found;
}

/* skip(data, start): by a plan that wants no field */
static PyObject *
plan_skip(Plan *self, PyObject *const *args, Py_ssize_t nargs)
{
    Reader r;
    PyObject *end = NULL;
    if (nargs == 2 && open_reader(&r, self, args[0], PyLong_AsSsize_t(args[1]))
        && zap_read_parts(&r, self, self->keys, Py_SIZE(self), NULL)) {
        end = PyLong_FromSsize_t(r.at - r.start);
    }
    return or_python(self, end, ZAP_SKIP, args, nargs);
}

/* encode(prefix, values by name, attachments) */
static PyObject *
plan_encode(Plan *self, PyObject *const *args, Py_ssize_t nargs)
{
    Writer w;
    int is_done = nargs == 3 && PyBytes_CheckExact(args[0]) && PyDict_CheckExact(args[1]);
    open_writer(&w, self);
    is_done = is_done
              && zap_write_bytes(&w, PyBytes_AS_STRING(args[0]), PyBytes_GET_SIZE(args[0]));
    if (is_done) {
        Py_ssize_t known = zap_write_parts(&w, self, self->keys, Py_SIZE(self), args[1]);
        for (Py_ssize_t i = 0; known >= 0 && i < self->keys; i++) {
            int contains = PyDict_Contains(args[1], self->fields[i].name);
            known = contains < 0 ? -1 : known + contains;
        }
        is_done = known == PyDict_GET_SIZE(args[1]);    /* so there is no other name */
    }
    return written_or_python(self, &w, is_done, ZAP_ENCODE, args, nargs);
}

/* A key of what the fields of the key, or of an index, have in `source`. */
static PyObject *
write_key(const Plan *self, PyObject *source, int is_done, Function function,
          PyObject *const *args, Py_ssize_t nargs)
{
    Writer w;
    open_writer(&w, self);
    is_done = is_done && zap_write_parts(&w, self, 0, self->keys, source) >= 0
              && w.at - w.start <= ZAP_KEY_MAX;
    return written_or_python(self, &w, is_done, function, args, nargs);
}

/* encode_key(values by name), or build(record) of an index */
static PyObject *
plan_encode_key(Plan *self, PyObject *source)
{
    int is_done = PyDict_CheckExact(source) || self->fields->order != 0;
    return write_key(self, source, is_done, ZAP_ENCODE_KEY, &source, 1);
}

/* key_of(a value for each of the key's fields) */
static PyObject *
plan_key_of(Plan *self, PyObject *args)
{
    Py_ssize_t count = PyTuple_GET_SIZE(args);
    PyObject *const *values = ((PyTupleObject *)args)->ob_item;
    return write_key(self, args, count == self->keys, ZAP_KEY_OF, values, count);
}

/* A field, from a tuple of (name, slot or None, presence bit or -1, default or ..., order, kind,
   number, decode, encode or None, first, second, plan of its parts or None). */
static int
take_field(const Plan *self, Field *f, PyObject *given)
{
    PyObject *slot, *parts;
    if (!PyArg_ParseTuple(given, "UOiOiinOOOOO", &f->name, &slot, &f->bit, &f->otherwise,
                          &f->order, &f->kind, &f->number, &f->decode, &f->encode, &f->first,
                          &f->second, &parts)) {
        return 0;
    }
    f->offset = -1;
    if (self->type == NULL) {   /* the items of a tuple are slots, too */
        f->offset = offsetof(PyTupleObject, ob_item) + (f - self->fields) * sizeof(PyObject *);
    }
    else if (Py_IS_TYPE(slot, &PyMemberDescr_Type)
             && PyType_IsSubtype(self->type, PyDescr_TYPE(slot))) {
        f->offset = ((PyMemberDescrObject *)slot)->d_member->offset;
    }
    f->parts = Py_IS_TYPE(parts, Py_TYPE(self)) ? (const Plan *)parts : NULL;
    if ((f->offset < 0 && slot != Py_None) || (f->parts == NULL && parts != Py_None)
        || (f->bit >= self->optional && f->order == 0)) {
        PyErr_BadInternalCall();
        return 0;
    }
    return 1;
}

/* Plan(class of the objects or None, fields, how many are of the key, up to which ones are read,
   how many are optional, functions) */
static PyObject *
plan_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    PyObject *made, *fields, *functions;
    Py_ssize_t keys, reach, optional;
    if (!PyArg_ParseTuple(args, "OO!nnnO!", &made, &PyTuple_Type, &fields, &keys, &reach,
                          &optional, &PyTuple_Type, &functions)) {
        return NULL;
    }
    Plan *self = (Plan *)type->tp_alloc(type, PyTuple_GET_SIZE(fields));
    if (self == NULL) {
        return NULL;
    }
    self->state = PyType_GetModuleState(type);
    self->given = Py_NewRef(args);
    self->type = PyType_Check(made) ? (PyTypeObject *)made : NULL;
    self->keys = keys;
    self->reach = reach;
    self->optional = optional;
    self->functions = functions;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(fields); i++) {
        if (!take_field(self, &self->fields[i], PyTuple_GET_ITEM(fields, i))) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static int
plan_traverse(Plan *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->given);
    return 0;
}

static void
plan_dealloc(Plan *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->given);
    type->tp_free(self);
    Py_DECREF(type);
}

#define METHOD(NAME, FLAGS) {#NAME, (PyCFunction)(void (*)(void))plan_##NAME, FLAGS, NULL}

static PyMethodDef plan_methods[] = {
    METHOD(decode, METH_FASTCALL),
    METHOD(read_row, METH_FASTCALL),
    METHOD(skip, METH_FASTCALL),
    METHOD(encode, METH_FASTCALL),
    METHOD(encode_key, METH_O),
    METHOD(key_of, METH_VARARGS),
    {NULL},
};

static PyType_Slot plan_slots[] = {
    {Py_tp_new, plan_new},
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_traverse, plan_traverse},
    {Py_tp_methods, plan_methods},
    {0, NULL},
};

PyType_Spec zap_plan_spec = {
    .name = "zapdb._native.Plan",
    .basicsize = sizeof(Plan),
    .itemsize = sizeof(Field),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = plan_slots,
};

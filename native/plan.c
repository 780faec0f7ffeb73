/* Plan: how the records of one layout are read and written.

   Its methods take the same arguments as the generated functions, and call them whenever they
   decline. That of an index has the index's components in the place of other fields. A plan never changes, so it can be in a cycle of garbage only with something that
   does: like a tuple, it has nothing to clear. */

#include "native.h"

/* The record, or NULL if that is for Python to read. */
PyObject *
zap_decode(const Plan *self, PyObject *key, PyObject *data, Py_ssize_t start,
           PyObject *attachments)
{
    Reader of_key, of_data;
    PyTypeObject *type = self->body.type;
    if (!PyBytes_CheckExact(data) || start < 0 || start > PyBytes_GET_SIZE(data)) {
        return NULL;
    }
    PyObject *record = type->tp_alloc(type, 0);
    if (record == NULL) {
        return NULL;
    }
    if (self->key.count > 0) {
        if (!PyBytes_CheckExact(key) || PyBytes_GET_SIZE(key) > ZAP_KEY_MAX) {
            goto decline;
        }
        zap_reader(&of_key, self->state, key, 0);
        for (Py_ssize_t i = 0; i < self->key.count; i++) {
            const Field *f = &self->key.fields[i];
            PyObject *value = zap_read_value(&of_key, &f->value);
            if (value == NULL) {
                goto decline;
            }
            if (f->offset < 0) {
                Py_DECREF(value);
            }
            else {
                *zap_slot(record, f->offset) = value;
            }
        }
        if (of_key.at != of_key.end) {
            goto decline;
        }
    }
    zap_reader(&of_data, self->state, data, start);
    if (!zap_read_parts(&of_data, &self->body, self->reach, record)
        || (self->reach == self->body.count && of_data.at != of_data.end)) {
        goto decline;
    }
    if (of_data.has_blob) {
        PyObject *args[2] = {record, attachments};
        PyObject *defer = PyTuple_GET_ITEM(self->functions, ZAP_DEFER);
        PyObject *deferred = PyObject_Vectorcall(defer, args, 2, NULL);
        Py_DECREF(record);
        return deferred;
    }
    return record;

decline:
    Py_DECREF(record);
    return NULL;
}

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

/* What was written, if it is done; frees the writer. */
static PyObject *
take_written(Writer *w, int is_done)
{
    PyObject *written = is_done ? zap_written(w) : NULL;
    zap_free_writer(w);
    return written;
}

/* decode(key, data, start, attachments) */
static PyObject *
plan_decode(Plan *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *record = NULL;
    if (nargs == 4) {
        Py_ssize_t start = PyLong_AsSsize_t(args[2]);
        record = zap_decode(self, args[0], args[1], start, args[3]);
    }
    return or_python(self, record, ZAP_DECODE, args, nargs);
}

/* skip(data, start) */
static PyObject *
plan_skip(Plan *self, PyObject *const *args, Py_ssize_t nargs)
{
    Reader r;
    PyObject *end = NULL;
    if (nargs == 2 && PyBytes_CheckExact(args[0])) {
        Py_ssize_t start = PyLong_AsSsize_t(args[1]);
        if (start >= 0 && start <= PyBytes_GET_SIZE(args[0])) {
            zap_reader(&r, self->state, args[0], start);
            end = zap_skip_parts(&r, &self->body) ? PyLong_FromSsize_t(r.at - r.start) : NULL;
        }
    }
    return or_python(self, end, ZAP_SKIP, args, nargs);
}

/* encode(prefix, values by name, attachments) */
static PyObject *
plan_encode(Plan *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *written = NULL;
    Writer w;
    if (nargs == 3 && PyBytes_CheckExact(args[0]) && PyDict_CheckExact(args[1])) {
        Py_ssize_t known = 0;
        zap_writer(&w, self->state);
        int is_done = zap_write_bytes(&w, PyBytes_AS_STRING(args[0]), PyBytes_GET_SIZE(args[0]))
                      && zap_write_parts(&w, &self->body, args[1], &known);
        for (Py_ssize_t i = 0; is_done && i < self->key.count; i++) {
            int contains = PyDict_Contains(args[1], self->key.fields[i].name);
            is_done = contains >= 0;
            known += contains;
        }
        /* As many as there are, so there is no other name. */
        written = take_written(&w, is_done && known == PyDict_GET_SIZE(args[1]));
    }
    return or_python(self, written, ZAP_ENCODE, args, nargs);
}

/* encode_key(values by name) */
static PyObject *
plan_encode_key(Plan *self, PyObject *values)
{
    PyObject *written = NULL;
    Writer w;
    if (PyDict_CheckExact(values)) {
        Py_ssize_t known = 0;
        zap_writer(&w, self->state);
        int is_done = zap_write_parts(&w, &self->key, values, &known);
        written = take_written(&w, is_done && w.at - w.start <= ZAP_KEY_MAX);
    }
    return or_python(self, written, ZAP_ENCODE_KEY, &values, 1);
}

/* key_of(a value for each of the key's fields) */
static PyObject *
plan_key_of(Plan *self, PyObject *const *args, Py_ssize_t nargs)
{
    Writer w;
    int is_done = nargs == self->key.count;
    zap_writer(&w, self->state);
    for (Py_ssize_t i = 0; is_done && i < nargs; i++) {
        is_done = zap_write_value(&w, &self->key.fields[i].value, args[i]);
    }
    PyObject *written = take_written(&w, is_done && w.at - w.start <= ZAP_KEY_MAX);
    return or_python(self, written, ZAP_KEY_OF, args, nargs);
}

/* decode_key(key) */
static PyObject *
plan_decode_key(Plan *self, PyObject *key)
{
    Reader r;
    PyObject *values = NULL;
    if (PyBytes_CheckExact(key) && PyBytes_GET_SIZE(key) <= ZAP_KEY_MAX) {
        values = PyTuple_New(self->key.count);
        zap_reader(&r, self->state, key, 0);
        for (Py_ssize_t i = 0; values != NULL && i < self->key.count; i++) {
            PyObject *value = zap_read_value(&r, &self->key.fields[i].value);
            if (value == NULL) {
                Py_CLEAR(values);
                break;
            }
            PyTuple_SET_ITEM(values, i, value);
        }
        if (values != NULL && r.at != r.end) {
            Py_CLEAR(values);
        }
    }
    return or_python(self, values, ZAP_DECODE_KEY, &key, 1);
}

/* One component of an index's key: see zapdb/indexes/keys.py. */
static int
write_component(Writer *w, const Field *f, PyObject *value)
{
    size_t begin = w->at - w->start;
    int is_null = value == Py_None && f->bit >= 0;
    if (!zap_reserve(w, 1)) {
        return 0;
    }
    *w->at++ = !is_null;
    if (!is_null && !zap_write_value(w, &f->value, value)) {
        return 0;
    }
    for (uint8_t *p = w->start + begin; f->is_inverted && p < w->at; p++) {
        *p = (uint8_t)~*p;
    }
    return 1;
}

/* build(record): an index's key. */
static PyObject *
plan_build(Plan *self, PyObject *record)
{
    Writer w;
    int is_done = 1;
    zap_writer(&w, self->state);
    for (Py_ssize_t i = 0; is_done && i < self->body.count; i++) {
        const Field *f = &self->body.fields[i];
        PyObject *value = PyObject_GetAttr(record, f->name);
        is_done = value != NULL && write_component(&w, f, value);
        Py_XDECREF(value);
    }
    return or_python(self, take_written(&w, is_done), ZAP_BUILD, &record, 1);
}

/* Plan(record class, key's fields, other fields, how many are optional, how many are read,
        functions) */
static PyObject *
plan_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    PyObject *record, *key, *body, *functions;
    Py_ssize_t optional, reach;
    State *state = PyType_GetModuleState(type);
    if (state == NULL
        || !PyArg_ParseTuple(args, "O!O!O!nnO!", &PyType_Type, &record, &PyTuple_Type, &key,
                             &PyTuple_Type, &body, &optional, &reach, &PyTuple_Type,
                             &functions)) {
        return NULL;
    }
    Plan *self = (Plan *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->state = state;
    self->reach = reach;
    self->functions = Py_NewRef(functions);
    if (zap_make_layout(&self->key, record, key, 0)
        && zap_make_layout(&self->body, record, body, optional)) {
        if (reach >= 0 && reach <= self->body.count
            && PyTuple_GET_SIZE(functions) == ZAP_FUNCTION_COUNT) {
            return (PyObject *)self;
        }
        PyErr_BadInternalCall();
    }
    Py_DECREF(self);
    return NULL;
}

static int
plan_traverse(Plan *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->functions);
    int result = zap_visit_layout(&self->key, visit, arg);
    return result ? result : zap_visit_layout(&self->body, visit, arg);
}

static void
plan_dealloc(Plan *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    zap_free_layout(&self->key);
    zap_free_layout(&self->body);
    Py_XDECREF(self->functions);
    type->tp_free(self);
    Py_DECREF(type);
}

#define METHOD(NAME, FUNCTION, FLAGS) {NAME, (PyCFunction)(void (*)(void))FUNCTION, FLAGS, NULL}

static PyMethodDef plan_methods[] = {
    METHOD("decode", plan_decode, METH_FASTCALL),
    METHOD("encode", plan_encode, METH_FASTCALL),
    METHOD("skip", plan_skip, METH_FASTCALL),
    METHOD("encode_key", plan_encode_key, METH_O),
    METHOD("key_of", plan_key_of, METH_FASTCALL),
    METHOD("decode_key", plan_decode_key, METH_O),
    METHOD("build", plan_build, METH_O),
    METHOD("iterate", zap_iterate, METH_FASTCALL),
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
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = plan_slots,
};

/* The records of a page, one after another: an iterator, so that what is looked at once is not
   kept. As `zip` does, it gives out the same pair again if nobody has kept it. Whatever cycle it
   is in goes through a record or a list, which can be cleared: so it has nothing to clear. */

#include "native.h"

typedef struct {
    PyObject_HEAD
    Plan *plan;
    PyObject *rows, *prefix, *attachments, *otherwise, *pair;
    Py_ssize_t next;
} Rows;

/* iterate(rows, prefix, attachments, otherwise): `rows` is a list of (place, key, data), of which
   pairs (key, record) are made; `otherwise(key, data)` reads what does not begin with the prefix,
   or is declined. */
PyObject *
zap_iterate(Plan *plan, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4 || !PyList_CheckExact(args[0]) || !PyBytes_CheckExact(args[1])) {
        PyErr_BadInternalCall();
        return NULL;
    }
    PyTypeObject *type = plan->state->rows_type;
    Rows *self = (Rows *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->plan = (Plan *)Py_NewRef(plan);
        self->rows = Py_NewRef(args[0]);
        self->prefix = Py_NewRef(args[1]);
        self->attachments = Py_NewRef(args[2]);
        self->otherwise = Py_NewRef(args[3]);
    }
    return (PyObject *)self;
}

static PyObject *
read_row(const Rows *self, PyObject *key, PyObject *data)
{
    Py_ssize_t size = PyBytes_GET_SIZE(self->prefix);
    PyObject *record = NULL;
    if (PyBytes_CheckExact(data) && PyBytes_GET_SIZE(data) >= size
        && memcmp(PyBytes_AS_STRING(data), PyBytes_AS_STRING(self->prefix), (size_t)size) == 0) {
        record = zap_decode(self->plan, key, data, size, self->attachments);
    }
    if (record != NULL || !zap_forget()) {
        return record;
    }
    PyObject *args[2] = {key, data};
    return PyObject_Vectorcall(self->otherwise, args, 2, NULL);
}

/* A pair that owns both references, which are taken from the caller. */
static PyObject *
make_pair(Rows *self, PyObject *key, PyObject *record)
{
    PyObject *pair = self->pair;
    if (pair == NULL || Py_REFCNT(pair) > 1) {
        pair = PyTuple_New(2);
        if (pair == NULL) {
            Py_DECREF(key);
            Py_DECREF(record);
            return NULL;
        }
        PyTuple_SET_ITEM(pair, 0, key);
        PyTuple_SET_ITEM(pair, 1, record);
        Py_XSETREF(self->pair, Py_NewRef(pair));
        return pair;
    }
    Py_INCREF(pair);                    /* so that it is no one else's while what it had goes */
    PyObject *old_key = PyTuple_GET_ITEM(pair, 0), *old_record = PyTuple_GET_ITEM(pair, 1);
    /* Python 3.14 keeps the hash of a tuple in it, but none of what has a record: that has none. */
    PyTuple_SET_ITEM(pair, 0, key);
    PyTuple_SET_ITEM(pair, 1, record);
    if (!PyObject_GC_IsTracked(pair)) { /* the collector leaves out tuples of what has no parts */
        PyObject_GC_Track(pair);
    }
    Py_DECREF(old_key);
    Py_DECREF(old_record);
    return pair;
}

static PyObject *
rows_next(Rows *self)
{
    if (self->next >= PyList_GET_SIZE(self->rows)) {
        return NULL;
    }
    PyObject *row = PyList_GET_ITEM(self->rows, self->next++);
    if (!PyTuple_CheckExact(row) || PyTuple_GET_SIZE(row) != 3) {
        PyErr_BadInternalCall();
        return NULL;
    }
    PyObject *key = Py_NewRef(PyTuple_GET_ITEM(row, 1));
    PyObject *data = Py_NewRef(PyTuple_GET_ITEM(row, 2));
    PyObject *record = read_row(self, key, data);
    Py_DECREF(data);
    if (record == NULL) {
        Py_DECREF(key);
        return NULL;
    }
    return make_pair(self, key, record);
}

static int
rows_traverse(Rows *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->plan);
    Py_VISIT(self->rows);
    Py_VISIT(self->attachments);
    Py_VISIT(self->otherwise);
    Py_VISIT(self->pair);
    return 0;
}

static void
rows_dealloc(Rows *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->plan);
    Py_XDECREF(self->rows);
    Py_XDECREF(self->prefix);
    Py_XDECREF(self->attachments);
    Py_XDECREF(self->otherwise);
    Py_XDECREF(self->pair);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot rows_slots[] = {
    {Py_tp_dealloc, rows_dealloc},
    {Py_tp_traverse, rows_traverse},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, rows_next},
    {0, NULL},
};

PyType_Spec zap_rows_spec = {
    .name = "zapdb._native.Rows",
    .basicsize = sizeof(Rows),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE
             | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = rows_slots,
};

/* The module zapdb._native, which makes plans: how the records of one layout, or the keys of one
   index, are read and written. It keeps nothing; sub-interpreters use the pure codec.

   make() returns a function that has a plan, takes the same arguments as the generated function it
   was made with, and calls that one whenever it declines. They are numbered as in native.py:

   decode(key, data, start, attachments)
   read_row(prefix, attachments, otherwise, (place, key, data)): the pair (key, record), if the data
      begin with the prefix
   skip(data, start): where the record ends, by a plan that wants no field
   encode(prefix, values by name, attachments)
   encode_key(values by name), or build(record) of an index
   key_of(a value for each of the key's fields) */

#include "native.h"
#include <structmember.h>

/* The plan of a function that make() has returned lies in bytes that nobody else looks into. */
#define PLAN_OF(SELF) ((const Plan *)PyBytes_AS_STRING(PyTuple_GET_ITEM(SELF, 0)))

enum { DECODE, READ_ROW, SKIP, ENCODE, ENCODE_KEY, KEY_OF };

/* Reads bytes from a place on, which mostly is to their end. */
static int
read_bytes(Reader *r, const Plan *plan, PyObject *data, Py_ssize_t at, PyObject *object)
{
    if (!PyBytes_CheckExact(data) || at < 0 || at > PyBytes_GET_SIZE(data)) {
        return 0;
    }
    r->data = data;
    r->start = (const uint8_t *)PyBytes_AS_STRING(data);
    r->at = r->start + at;
    r->end = r->start + PyBytes_GET_SIZE(data);
    r->is_wrong = r->has_blob = 0;
    return zap_read_parts(r, plan, object) && (!plan->is_whole || r->at == r->end);
}

static PyObject *
read_record(const Plan *plan, PyObject *key, PyObject *data, Py_ssize_t start,
            PyObject *attachments)
{
    Reader r;
    PyObject *record = plan->type->tp_alloc(plan->type, 0);
    int is_done = record != NULL
                  && (plan->key == NULL || (read_bytes(&r, plan->key, key, 0, record)
                                            && r.end - r.start <= ZAP_KEY_MAX))
                  && read_bytes(&r, plan, data, start, record);
    if (!is_done) {
        Py_CLEAR(record);
    }
    else if (r.has_blob) {
        Py_SETREF(record, PyObject_CallMethod(record, "_defer", "(O)", attachments));
    }
    return record;
}

static PyObject *
read_row(const Plan *plan, PyObject *prefix, PyObject *attachments, PyObject *row)
{
    if (!PyBytes_CheckExact(prefix) || !PyTuple_CheckExact(row) || PyTuple_GET_SIZE(row) != 3) {
        return NULL;
    }
    PyObject *key = PyTuple_GET_ITEM(row, 1), *data = PyTuple_GET_ITEM(row, 2);
    Py_ssize_t size = PyBytes_GET_SIZE(prefix);
    if (!PyBytes_CheckExact(data) || PyBytes_GET_SIZE(data) < size
        || memcmp(PyBytes_AS_STRING(data), PyBytes_AS_STRING(prefix), (size_t)size) != 0) {
        return NULL;
    }
    PyObject *record = read_record(plan, key, data, size, attachments);
    PyObject *pair = record == NULL ? NULL : PyTuple_Pack(2, key, record);
    Py_XDECREF(record);
    return pair;
}

/* Writes a record behind its prefix, if the source has no other name; or a key, without one. */
static PyObject *
write_all(const Plan *plan, PyObject *prefix, PyObject *source, PyObject *const *values)
{
    Writer w;
    PyObject *written = NULL;
    w.start = w.at = w.small;
    w.end = w.small + sizeof(w.small);
    w.is_wrong = 0;
    if (prefix != NULL) {
        zap_write_object(&w, prefix);
    }
    Py_ssize_t known = zap_write_parts(&w, plan, source, values);
    if (!w.is_wrong && (prefix == NULL ? w.at - w.start <= ZAP_KEY_MAX
                                       : known == PyDict_GET_SIZE(source))) {
        written = PyBytes_FromStringAndSize((const char *)w.start, w.at - w.start);
    }
    if (w.start != w.small) {
        PyMem_Free(w.start);
    }
    return written;
}

static PyObject *
attempt(const Plan *plan, PyObject *const *args)
{
    Reader r;
    switch (plan->method) {
    case DECODE: return read_record(plan, args[0], args[1], PyLong_AsSsize_t(args[2]), args[3]);
    case READ_ROW: return read_row(plan, args[0], args[1], args[3]);
    case SKIP:
        return read_bytes(&r, plan, args[0], PyLong_AsSsize_t(args[1]), NULL)
                   ? PyLong_FromSsize_t(r.at - r.start) : NULL;
    case ENCODE: return PyDict_CheckExact(args[1]) ? write_all(plan, args[0], args[1], NULL) : NULL;
    case ENCODE_KEY:
        return PyDict_CheckExact(args[0]) == (plan->fields->order == 0)
                   ? write_all(plan, NULL, args[0], NULL) : NULL;
    default: return write_all(plan, NULL, NULL, args);
    }
}

/* What a function that has a plan does: else Python's own, with the same arguments. */
static PyObject *
call(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    const Plan *plan = PLAN_OF(self);
    PyObject *result = nargs == plan->nargs ? attempt(plan, args) : NULL;
    if (result != NULL || !zap_forget()) {
        return result;
    }
    return PyObject_Vectorcall(plan->python, args, nargs, NULL);
}

static PyMethodDef call_method = {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL, NULL};

/* A field, from a tuple of (name, slot of the object, or a place in it, or -1, presence bit or -1,
   default or ..., order, kind, number, decode, encode or None, first, second, function with a plan
   of its parts or None). */
static int
take_field(const Plan *plan, Field *f, PyObject *given)
{
    PyObject *slot, *parts;
    if (!PyArg_ParseTuple(given, "UOiOiinOOOOO", &f->name, &slot, &f->bit, &f->otherwise,
                          &f->order, &f->kind, &f->number, &f->decode, &f->encode, &f->first,
                          &f->second, &parts)) {
        return 0;
    }
    assert(PyLong_Check(slot) || Py_IS_TYPE(slot, &PyMemberDescr_Type));
    assert(f->bit < plan->optional || f->order != 0);
    f->offset = PyLong_Check(slot) ? PyLong_AsSsize_t(slot)
                                   : ((PyMemberDescrObject *)slot)->d_member->offset;
    f->parts = parts == Py_None ? NULL : PLAN_OF(PyCFunction_GET_SELF(parts));
    f->datetime = PyCapsule_Import("datetime.datetime_CAPI", 0);
    return f->datetime != NULL;
}

/* make(number of the method, Python's function, class of what is read, fields, how many of them are
   optional, function with a plan of the key or None, whether these fields are all) */
static PyObject *
make(PyObject *Py_UNUSED(module), PyObject *args)
{
    static const int nargs[] = {4, 4, 2, 3, 1};
    int method, optional, is_whole;
    PyObject *python, *type, *key, *fields;
    if (!PyArg_ParseTuple(args, "iOO!O!iOi", &method, &python, &PyType_Type, &type, &PyTuple_Type,
                          &fields, &optional, &key, &is_whole)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(fields);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, sizeof(Plan) + count * sizeof(Field));
    PyObject *self = bytes == NULL ? NULL : Py_BuildValue("(NO)", bytes, args);
    PyObject *made = self == NULL ? NULL : PyCFunction_New(&call_method, self);
    Py_XDECREF(self);
    Plan *plan = made == NULL ? NULL : (Plan *)PLAN_OF(self);
    if (plan != NULL) {
        *plan = (Plan){method, method < KEY_OF ? nargs[method] : count, (PyTypeObject *)type,
                       key == Py_None ? NULL : PLAN_OF(PyCFunction_GET_SELF(key)),
                       python, optional, is_whole, count};
    }
    for (Py_ssize_t i = 0; made != NULL && i < count; i++) {
        if (!take_field(plan, &plan->fields[i], PyTuple_GET_ITEM(fields, i))) {
            Py_CLEAR(made);
        }
    }
    return made;
}

#define ADD_KIND(NAME) || PyModule_AddIntConstant(module, #NAME, ZAP_##NAME) < 0

static int
module_exec(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetNone(PyExc_ImportError);
        return -1;
    }
    int is_wrong = PyModule_AddIntConstant(module, "INTERFACE", ZAP_INTERFACE) < 0
                   ZAP_KINDS(ADD_KIND);
    return is_wrong ? -1 : 0;
}

static PyMethodDef module_methods[] = {
    {"make", make, METH_VARARGS, NULL},
    {NULL},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef native_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "zapdb._native",
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&native_module);
}

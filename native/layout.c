/* Layouts and the types of their fields, from the tuples that zapdb/records/native.py makes:

       field   (name, slot or None, presence bit or -1, default or ..., is inverted, type)
       type    (kind, number, decode, skip, encode, first, second, class or None, fields, optional) */

#include "native.h"
#include <structmember.h>

static int
take_offset(Py_ssize_t *offset, PyTypeObject *type, PyObject *slot)
{
    *offset = -1;
    if (slot == Py_None) {
        return 1;
    }
    if (type == NULL || !Py_IS_TYPE(slot, &PyMemberDescr_Type)
        || !PyType_IsSubtype(type, PyDescr_TYPE(slot))) {
        return 0;
    }
    const PyMemberDef *member = ((PyMemberDescrObject *)slot)->d_member;
    *offset = member->offset;
    return member->type == T_OBJECT_EX
           && *offset + (Py_ssize_t)sizeof(PyObject *) <= type->tp_basicsize;
}

static PyObject *
known_or_null(PyObject *object, PyObject *absent)
{
    return object == absent ? NULL : Py_NewRef(object);
}

/* Whether what a kind needs is there. */
static int
is_whole(const Value *v)
{
    switch (v->kind) {
        case ZAP_ENUM:
        case ZAP_ZONED:
            return v->first != NULL && v->second != NULL && PyDict_CheckExact(v->first)
                   && PyDict_CheckExact(v->second);
        case ZAP_DECIMAL:
            return v->first != NULL && v->second != NULL;
        case ZAP_LIST:
            return v->parts.count == 1;
        case ZAP_KEY:
            return v->parts.count >= 1;
        case ZAP_STRUCT:
            return v->parts.type != NULL;
        default:
            return 1;
    }
}

static int
take_value(Value *v, PyObject *description)
{
    int kind;
    Py_ssize_t optional;
    PyObject *decode, *skip, *encode, *first, *second, *type, *fields;
    if (!PyArg_ParseTuple(description, "inOOOOOOO!n", &kind, &v->number, &decode, &skip, &encode,
                          &first, &second, &type, &PyTuple_Type, &fields, &optional)) {
        return 0;
    }
    v->kind = (Kind)kind;
    v->decode = Py_NewRef(decode);
    v->skip = Py_NewRef(skip);
    v->encode = known_or_null(encode, Py_None);
    v->first = known_or_null(first, Py_None);
    v->second = known_or_null(second, Py_None);
    if (kind < 0 || kind >= ZAP_KIND_COUNT || !zap_make_layout(&v->parts, type, fields, optional)
        || !is_whole(v)) {
        if (!PyErr_Occurred()) {
            PyErr_BadInternalCall();
        }
        return 0;
    }
    return 1;
}

static int
take_field(Field *f, PyTypeObject *type, PyObject *description)
{
    PyObject *name, *slot, *otherwise, *value;
    if (!PyArg_ParseTuple(description, "UOiOpO!", &name, &slot, &f->bit, &otherwise,
                          &f->is_inverted, &PyTuple_Type, &value)) {
        return 0;
    }
    f->name = Py_NewRef(name);
    PyUnicode_InternInPlace(&f->name);
    f->otherwise = known_or_null(otherwise, Py_Ellipsis);
    if (!take_offset(&f->offset, type, slot)) {
        PyErr_BadInternalCall();
        return 0;
    }
    return take_value(&f->value, value);
}

/* The layout is all zeros before; whatever was made of it, zap_free_layout() frees. */
int
zap_make_layout(Layout *layout, PyObject *type, PyObject *fields, Py_ssize_t optional)
{
    Py_ssize_t count = PyTuple_GET_SIZE(fields);
    layout->optional = optional;
    if (type != Py_None) {
        if (!PyType_Check(type) || ((PyTypeObject *)type)->tp_itemsize != 0) {
            PyErr_BadInternalCall();
            return 0;
        }
        layout->type = (PyTypeObject *)Py_NewRef(type);
    }
    layout->fields = PyMem_Calloc((size_t)count + 1, sizeof(Field));
    if (layout->fields == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    layout->count = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *field = PyTuple_GET_ITEM(fields, i);
        if (!take_field(&layout->fields[i], layout->type, field)) {
            return 0;
        }
        if (layout->fields[i].bit >= optional) {
            PyErr_BadInternalCall();
            return 0;
        }
    }
    return 1;
}

int
zap_visit_layout(const Layout *layout, visitproc visit, void *arg)
{
    Py_VISIT(layout->type);
    for (Py_ssize_t i = 0; i < layout->count; i++) {
        const Value *v = &layout->fields[i].value;
        PyObject *held[] = {layout->fields[i].otherwise, v->decode, v->skip, v->encode,
                            v->first, v->second};
        for (size_t j = 0; j < Py_ARRAY_LENGTH(held); j++) {
            Py_VISIT(held[j]);
        }
        int result = zap_visit_layout(&v->parts, visit, arg);
        if (result) {
            return result;
        }
    }
    return 0;
}

void
zap_free_layout(Layout *layout)
{
    for (Py_ssize_t i = 0; i < layout->count; i++) {
        Value *v = &layout->fields[i].value;
        PyObject *held[] = {layout->fields[i].name, layout->fields[i].otherwise, v->decode,
                            v->skip, v->encode, v->first, v->second};
        for (size_t j = 0; j < Py_ARRAY_LENGTH(held); j++) {
            Py_XDECREF(held[j]);
        }
        zap_free_layout(&v->parts);
    }
    PyMem_Free(layout->fields);
    Py_XDECREF(layout->type);
}

/* The module zapdb._native, which keeps nothing; sub-interpreters use the pure codec. */

#include "native.h"

#define ADD_KIND(NAME) || PyModule_AddIntConstant(module, #NAME, ZAP_##NAME) < 0

static int
module_exec(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetNone(PyExc_ImportError);
        return -1;
    }
    int is_wrong = PyModule_AddIntConstant(module, "INTERFACE", ZAP_INTERFACE) < 0
                   || PyModule_AddIntConstant(module, "KEY_MAX", ZAP_KEY_MAX) < 0
                   || PyModule_AddIntConstant(module, "DEPTH_MAX", ZAP_DEPTH_MAX) < 0
                   ZAP_KINDS(ADD_KIND);
    return is_wrong ? -1 : 0;
}

static PyMethodDef module_methods[] = {
    {"make", zap_make, METH_VARARGS, NULL},
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

/* The module zapdb._native. What it keeps is in its state; sub-interpreters use the pure codec. */

#include "native.h"

int
zap_forget(void)
{
    if (PyErr_Occurred() == NULL) {
        return 1;
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return 0;
    }
    PyErr_Clear();
    return 1;
}

#define ADD_KIND(NAME) || PyModule_AddIntConstant(module, #NAME, ZAP_##NAME) < 0

static int
add_constants(PyObject *module)
{
    PyObject *limits = Py_BuildValue("(iiii)", ZAP_INLINE_MAX, ZAP_VALUE_MAX, ZAP_KEY_MAX,
                                     ZAP_DEPTH_MAX);
    int is_wrong = PyModule_AddObjectRef(module, "LIMITS", limits) < 0
                   || PyModule_AddIntConstant(module, "INTERFACE", ZAP_INTERFACE) < 0
                   ZAP_KINDS(ADD_KIND);
    Py_XDECREF(limits);
    return is_wrong ? -1 : 0;
}

static int
module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetNone(PyExc_ImportError);
        return -1;
    }
    state->plan_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &zap_plan_spec, NULL);
    state->rows_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &zap_rows_spec, NULL);
    if (state->plan_type == NULL || state->rows_type == NULL || !zap_load_types(state)) {
        return -1;
    }
    return PyModule_AddType(module, state->plan_type) < 0 ? -1 : add_constants(module);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->plan_type);
    Py_VISIT(state->rows_type);
    Py_VISIT(state->uuid_type);
    Py_VISIT(state->decimal_type);
    Py_VISIT(state->uuid_unknown);
    return 0;
}

static int
module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->plan_type);
    Py_CLEAR(state->rows_type);
    Py_CLEAR(state->uuid_type);
    Py_CLEAR(state->decimal_type);
    Py_CLEAR(state->uuid_unknown);
    for (int i = 0; i < ZAP_KNOWN_KEYS; i++) {
        Py_CLEAR(state->known_keys[i]);
    }
    return 0;
}

static void
module_free(void *module)
{
    (void)module_clear((PyObject *)module);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef native_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "zapdb._native",
    .m_size = sizeof(State),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&native_module);
}

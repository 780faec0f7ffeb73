/* The module zapdb._native. What it keeps is in its state; sub-interpreters use the pure codec. */

#include "native.h"
#include <datetime.h>

#define ADD_KIND(NAME) || PyModule_AddIntConstant(module, #NAME, ZAP_##NAME) < 0

static int
module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetNone(PyExc_ImportError);
        return -1;
    }
    (void)PyDateTimeAPI;        /* a variable that the header has in each file: the state has it */
    state->datetime = PyCapsule_Import(PyDateTime_CAPSULE_NAME, 0);
    PyObject *plan = PyType_FromModuleAndSpec(module, &zap_plan_spec, NULL);
    int is_wrong = state->datetime == NULL || plan == NULL
                   || PyModule_AddType(module, (PyTypeObject *)plan) < 0
                   || PyModule_AddIntConstant(module, "INTERFACE", ZAP_INTERFACE) < 0
                   || PyModule_AddIntConstant(module, "KEY_MAX", ZAP_KEY_MAX) < 0
                   || PyModule_AddIntConstant(module, "DEPTH_MAX", ZAP_DEPTH_MAX) < 0
                   ZAP_KINDS(ADD_KIND);
    Py_XDECREF(plan);
    return is_wrong ? -1 : 0;
}

static void
module_free(void *module)
{
    State *state = PyModule_GetState((PyObject *)module);
    for (int i = 0; i < ZAP_KNOWN_KEYS; i++) {
        Py_CLEAR(state->known_keys[i]);
    }
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef native_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "zapdb._native",
    .m_size = sizeof(State),
    .m_slots = module_slots,
    .m_free = module_free,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&native_module);
}

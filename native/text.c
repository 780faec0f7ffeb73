/* Strings and their UTF-8. The UTF-8 is never kept in the string, as Python's own functions would
   do: it belongs to the caller, and may be large. */

#include "native.h"

PyObject *
zap_text(const uint8_t *bytes, Py_ssize_t size)
{
    if (size > 1 && size < ZAP_SMALL_TEXT) {
        uint8_t any = 0;
        for (Py_ssize_t i = 0; i < size; i++) {
            any |= bytes[i];
        }
        if (any < 0x80) {
            PyObject *text = PyUnicode_New(size, 127);
            if (text != NULL) {
                memcpy(PyUnicode_1BYTE_DATA(text), bytes, size);
            }
            return text;
        }
    }
    return PyUnicode_DecodeUTF8((const char *)bytes, size, NULL);
}

/* The size of the UTF-8 of an exact str; -1 if it has none, because of a lone surrogate. */
Py_ssize_t
zap_utf8_size(PyObject *text)
{
#if PY_VERSION_HEX < 0x030C0000
    if (PyUnicode_READY(text) < 0) {
        return -1;
    }
#endif
    Py_ssize_t length = PyUnicode_GET_LENGTH(text), size = length;
    if (PyUnicode_IS_ASCII(text)) {
        return size;
    }
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    for (Py_ssize_t i = 0; i < length; i++) {
        Py_UCS4 c = PyUnicode_READ(kind, data, i);
        if (c >= 0xD800 && c <= 0xDFFF) {
            return -1;
        }
        size += (c >= 0x80) + (c >= 0x800) + (c >= 0x10000);
    }
    return size;
}

/* Writes the UTF-8 of a text of which zap_utf8_size() has told the size. */
int
zap_write_utf8(Writer *w, PyObject *text, Py_ssize_t size)
{
    if (PyUnicode_IS_ASCII(text)) {
        return zap_write_bytes(w, PyUnicode_1BYTE_DATA(text), size);
    }
    if (!zap_reserve(w, size)) {
        return 0;
    }
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    uint8_t *p = w->at;
    for (Py_ssize_t i = 0; i < length; i++) {
        Py_UCS4 c = PyUnicode_READ(kind, data, i);
        if (c < 0x80) {
            *p++ = (uint8_t)c;
            continue;
        }
        if (c < 0x800) {
            *p++ = (uint8_t)(0xC0 | c >> 6);
        }
        else {
            if (c < 0x10000) {
                *p++ = (uint8_t)(0xE0 | c >> 12);
            }
            else {
                *p++ = (uint8_t)(0xF0 | c >> 18);
                *p++ = (uint8_t)(0x80 | (c >> 12 & 0x3F));
            }
            *p++ = (uint8_t)(0x80 | (c >> 6 & 0x3F));
        }
        *p++ = (uint8_t)(0x80 | (c & 0x3F));
    }
    w->at = p;
    return 1;
}

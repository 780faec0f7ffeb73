/* What values are made of: varints, lengths, texts, and bytes that grow while they are written. */

#include "native.h"

#define ZERO 0x80
#define SHORT_END 64            /* integers from -64 to 63 are one byte */
#define FIRST_BELOW 0x40        /* less the size of a payload: the first byte of those below … */
#define FIRST_ABOVE 0xBF        /* … and with it that of those above */
#define PAYLOAD_MAX 8

/* The bytes of the payload of a number, or of the inverse of one that is negative. */
static int
payload_size(uint64_t number)
{
    int size = 0;
    for (; number; number >>= 8) {
        size++;
    }
    return size;
}

/* Reads an orderable varint (zapdb/values/varint.py) that an int64_t has room for. */
int64_t
zap_read_varint(Reader *r)
{
    int first = (int)zap_read_number(r, 1), is_negative = first < FIRST_BELOW;
    int size = is_negative ? FIRST_BELOW - first : first - FIRST_ABOVE;
    if (size <= 0) {
        return first - ZERO;
    }
    if (size > PAYLOAD_MAX) {
        r->is_wrong = 1;
        return 0;
    }
    uint64_t number = zap_read_number(r, size);
    if (is_negative) {
        number ^= UINT64_MAX >> (8 * (PAYLOAD_MAX - size));
    }
    r->is_wrong |= number < SHORT_END || number > INT64_MAX || payload_size(number) != size;
    return is_negative ? (int64_t)~number : (int64_t)number;
}

/* The caller has reserved ZAP_SCALAR_MAX bytes. */
void
zap_put_varint(Writer *w, int64_t value)
{
    uint64_t number = value < 0 ? ~(uint64_t)value : (uint64_t)value;
    if (number < SHORT_END) {
        *w->at++ = (uint8_t)(ZERO + value);
        return;
    }
    int size = payload_size(number);
    *w->at++ = (uint8_t)(value < 0 ? FIRST_BELOW - size : FIRST_ABOVE + size);
    zap_put(w, (uint64_t)value, size);
}

/* Puts the length of what was written since `begin` into its place: the caller has left one byte
   for it there, and a longer one moves what was written. */
void
zap_close_extent(Writer *w, size_t begin, Py_ssize_t size_max)
{
    size_t size = (w->at - w->start) - begin - 1;
    zap_reserve(w, ZAP_SCALAR_MAX);
    w->is_wrong |= size > (size_t)size_max;
    if (!w->is_wrong) {
        w->at = w->start + begin;
        if (size >= SHORT_END) {
            memmove(w->at + 1 + payload_size(size), w->at + 1, size);
        }
        zap_put_varint(w, (int64_t)size);
        w->at += size;
    }
}

/* See zap_reserve() */
void
zap_grow(Writer *w, size_t size)
{
    size_t used = w->at - w->start, wanted = 2 * (used + size);
    uint8_t *made = w->start == w->small ? NULL : w->start;
    uint8_t *start = size > PY_SSIZE_T_MAX / 4 ? NULL : PyMem_Realloc(made, wanted);
    if (start == NULL) {
        w->is_wrong |= ZAP_LOST;
        w->at = w->start;
        return;
    }
    if (made == NULL) {
        memcpy(start, w->small, used);
    }
    w->start = start;
    w->at = start + used;
    w->end = start + wanted;
}

void
zap_write_bytes(Writer *w, const void *bytes, Py_ssize_t size)
{
    zap_reserve(w, size);
    if (!w->is_wrong) {
        memcpy(w->at, bytes, size);
        w->at += size;
    }
}

/* Writes a bytes object, which the caller borrows, or keeps. */
void
zap_write_object(Writer *w, PyObject *object)
{
    if (object == NULL || !PyBytes_CheckExact(object)) {
        w->is_wrong |= 1;
        return;
    }
    zap_write_bytes(w, PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object));
}

/* Most texts are short and ASCII, which takes Python's own decoder longer to find out. */
PyObject *
zap_text(const void *bytes, Py_ssize_t size)
{
    uint8_t all = 0;
    int is_short = size > 1 && size < SHORT_END;
    for (Py_ssize_t i = 0; is_short && i < size; i++) {
        all |= ((const uint8_t *)bytes)[i];
    }
    if (!is_short || all >= 0x80) {
        return PyUnicode_DecodeUTF8(bytes, size, NULL);
    }
    PyObject *text = PyUnicode_New(size, 127);
    if (text != NULL) {
        memcpy(PyUnicode_1BYTE_DATA(text), bytes, size);
    }
    return text;
}

/* Of a string, for zap_write_text(), which gives its owner back. */
Text
zap_open_text(Writer *w, PyObject *string)
{
    int is_string = PyUnicode_CheckExact(string);
    if (is_string && PyUnicode_IS_COMPACT_ASCII(string)) {
        return (Text){NULL, PyUnicode_DATA(string), PyUnicode_GET_LENGTH(string)};
    }
    PyObject *owner = is_string ? PyUnicode_AsUTF8String(string) : NULL;
    w->is_wrong |= owner == NULL;
    return owner == NULL ? (Text){NULL, "", 0}
                         : (Text){owner, PyBytes_AS_STRING(owner), PyBytes_GET_SIZE(owner)};
}

void
zap_write_text(Writer *w, Text text)
{
    zap_write_bytes(w, text.bytes, text.size);
    Py_XDECREF(text.owner);
}

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

/* Reads a length, and leaves the bytes that have it, and no more, to be read: the caller has kept
   the reader's end. */
void
zap_read_extent(Reader *r, Py_ssize_t size_max)
{
    int64_t size = zap_read_varint(r);
    if (size < 0 || size > size_max || size > r->end - r->at) {
        r->is_wrong = 1;
        size = 0;
    }
    r->end = r->at + size;
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
int
zap_close_extent(Writer *w, size_t begin, Py_ssize_t size_max)
{
    size_t size = (w->at - w->start) - begin - 1;
    if (size > (size_t)size_max || !zap_reserve(w, ZAP_SCALAR_MAX)) {
        return 0;
    }
    w->at = w->start + begin;
    if (size >= SHORT_END) {
        memmove(w->at + 1 + payload_size(size), w->at + 1, size);
    }
    zap_put_varint(w, (int64_t)size);
    w->at += size;
    return 1;
}

int
zap_grow(Writer *w, size_t size)
{
    size_t used = w->at - w->start, wanted = 2 * (used + size);
    uint8_t *start = size > PY_SSIZE_T_MAX / 4 ? NULL : PyMem_Malloc(wanted);
    if (start == NULL) {
        return 0;
    }
    memcpy(start, w->start, used);
    if (w->start != w->small) {
        PyMem_Free(w->start);
    }
    w->start = start;
    w->at = start + used;
    w->end = start + wanted;
    return 1;
}

int
zap_write_bytes(Writer *w, const void *bytes, Py_ssize_t size)
{
    if (!zap_reserve(w, size)) {
        return 0;
    }
    memcpy(w->at, bytes, size);
    w->at += size;
    return 1;
}

/* Most texts are short and ASCII, which takes Python's own decoder longer to find out. */
PyObject *
zap_text(const void *bytes, Py_ssize_t size)
{
    uint8_t all = size < SHORT_END ? 0 : 0x80;
    for (Py_ssize_t i = 0; i < size && all < 0x80; i++) {
        all |= ((const uint8_t *)bytes)[i];
    }
    PyObject *text = all < 0x80 && size > 1 ? PyUnicode_New(size, 127) : NULL;
    if (text == NULL) {
        return zap_forget() ? PyUnicode_DecodeUTF8(bytes, size, NULL) : NULL;
    }
    memcpy(PyUnicode_1BYTE_DATA(text), bytes, size);
    return text;
}

int
zap_open_text(PyObject *object, int is_binary, Text *text)
{
    text->owner = NULL;
    if (is_binary ? !PyBytes_CheckExact(object) : !PyUnicode_CheckExact(object)) {
        return 0;
    }
    if (!is_binary && PyUnicode_IS_COMPACT_ASCII(object)) {
        text->bytes = PyUnicode_1BYTE_DATA(object);
        text->size = PyUnicode_GET_LENGTH(object);
        return 1;
    }
    text->owner = is_binary ? Py_NewRef(object) : PyUnicode_AsUTF8String(object);
    if (text->owner == NULL) {
        return 0;
    }
    text->bytes = PyBytes_AS_STRING(text->owner);
    text->size = PyBytes_GET_SIZE(text->owner);
    return 1;
}

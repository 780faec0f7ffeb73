/* The orderable varint (zapdb/values/varint.py), as far as its payload has 8 bytes. */

#include "native.h"

#define FIRST_OF_ONE 0x40       /* the first bytes of integers without payload … */
#define FIRST_ABOVE 0xC0        /* … and of those above 63 */
#define ZERO 0x80
#define RESERVED_LOW 0x00
#define RESERVED_HIGH 0xFF
#define PAYLOAD_MAX 8

/* Reads an integer; one of 2^63 or more is_unsigned. Declines a longer one, too. */
int
zap_read_varint(Reader *r, int64_t *value, int *is_unsigned)
{
    const uint8_t *p = r->at;
    *is_unsigned = 0;
    if (p >= r->end) {
        return 0;
    }
    int first = *p++;
    if (first >= FIRST_OF_ONE && first < FIRST_ABOVE) {
        *value = first - ZERO;
        r->at = p;
        return 1;
    }
    if (first == RESERVED_LOW || first == RESERVED_HIGH) {
        return 0;
    }
    int is_negative = first < FIRST_OF_ONE;
    int size = is_negative ? FIRST_OF_ONE - first : first - FIRST_ABOVE + 1;
    if (size > PAYLOAD_MAX || r->end - p < size) {
        return 0;
    }
    uint64_t payload = zap_big_endian(p, size);
    if (!is_negative) {
        if (size == 1 ? payload < 64 : !p[0]) {
            return 0;
        }
        *is_unsigned = payload > INT64_MAX;
        *value = (int64_t)payload;
    }
    else {
        if (size == PAYLOAD_MAX) {
            if (payload <= INT64_MAX) {
                return 0;       /* below -2^63 */
            }
            *value = (int64_t)payload;
        }
        else {
            *value = (int64_t)payload - ((int64_t)1 << (8 * size));
        }
        if (*value >= -64 || (size > 1 && p[0] == 0xFF)) {
            return 0;
        }
    }
    r->at = p + size;
    return 1;
}

/* The bytes of an integer that begins so, whatever its form; 0 if none does. */
int
zap_varint_size(uint8_t first)
{
    if (first == RESERVED_LOW || first == RESERVED_HIGH) {
        return 0;
    }
    if (first >= FIRST_ABOVE) {
        return 2 + first - FIRST_ABOVE;
    }
    return first < FIRST_OF_ONE ? 1 + FIRST_OF_ONE - first : 1;
}

/* Reads a length, and steps over as many bytes, which `inside` is to read. */
int
zap_read_extent(Reader *r, Py_ssize_t size_max, Reader *inside)
{
    int64_t size;
    int is_unsigned;
    if (!zap_read_varint(r, &size, &is_unsigned) || is_unsigned || size < 0 || size > size_max
        || size > zap_left(r)) {
        return 0;
    }
    *inside = *r;
    inside->end = r->at + size;
    r->at += size;
    return 1;
}

static int
size_of(uint64_t value)
{
    int size = 0;
    for (; value; value >>= 8) {
        size++;
    }
    return size;
}

/* The caller has reserved ZAP_VARINT_MAX bytes. */
void
zap_put_varint(Writer *w, int64_t value)
{
    if (value >= -64 && value < 64) {
        *w->at++ = (uint8_t)(ZERO + value);
    }
    else if (value > 0) {
        int size = size_of((uint64_t)value);
        *w->at++ = (uint8_t)(FIRST_ABOVE - 1 + size);
        zap_put(w, (uint64_t)value, size);
    }
    else {
        int size = size_of(~(uint64_t)value);
        *w->at++ = (uint8_t)(FIRST_OF_ONE - size);
        zap_put(w, (uint64_t)value, size);
    }
}

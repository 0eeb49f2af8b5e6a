"""KV elements in numba, which knows no bfloat16 and no fp8: it sees uint16 and uint8, and widens and rounds them by their bits."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _word(n: int) -> Any:
    return ir.Constant(ir.IntType(32), n)


@intrinsic
def widen(typingctx: Any, x: Any) -> Any:
    """float32 of a KV element: itself, bfloat16 bits shifted into place, or what an int8 or the bits of an e4m3 stand for."""
    if x == types.float32:
        return types.float32(x), lambda context, builder, signature, args: args[0]
    if x == types.int8:
        return types.float32(x), lambda context, builder, signature, args: builder.sitofp(args[0], ir.FloatType())

    def bfloat16(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = builder.shl(builder.zext(args[0], ir.IntType(32)), _word(16))
        return builder.bitcast(wide, ir.FloatType())

    def e4m3(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        """In place the exponent is 120 too small: the product mends it, for numbers below the normal ones too."""
        wide = builder.zext(args[0], ir.IntType(32))
        sign = builder.shl(builder.and_(wide, _word(0x80)), _word(24))
        rest = builder.shl(builder.and_(wide, _word(0x7F)), _word(20))
        number = builder.bitcast(builder.or_(sign, rest), ir.FloatType())
        return builder.fmul(number, ir.Constant(ir.FloatType(), 2.0**120))

    return (types.float32(types.uint8), e4m3) if x == types.uint8 else (types.float32(types.uint16), bfloat16)


@intrinsic
def narrow(typingctx: Any, like: Any, x: Any) -> Any:
    """x as a KV element of the type of `like`, rounded to nearest even. One-byte elements want |x| within their range."""
    if like == types.float32:
        return types.float32(like, types.float32), lambda context, builder, signature, args: args[1]

    def nearest(builder: Any, x: Any) -> Any:
        kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()])
        return builder.call(builder.module.declare_intrinsic("llvm.rint.f32", (), kind), [x])

    def rounded(builder: Any, word: Any, dropped: int) -> Any:
        """A word without its last bits."""
        odd = builder.and_(builder.lshr(word, _word(dropped)), _word(1))
        up = builder.add(builder.add(word, _word((1 << (dropped - 1)) - 1)), odd)
        return builder.lshr(up, _word(dropped))

    def int8(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.trunc(builder.fptosi(nearest(builder, args[1]), ir.IntType(32)), ir.IntType(8))

    def bfloat16(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.trunc(rounded(builder, builder.bitcast(args[1], ir.IntType(32)), 16), ir.IntType(16))

    def e4m3(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        """From 2^-6 on three bits after the first; below, whole multiples of 2^-9 (eight of them are 2^-6)."""
        word = builder.bitcast(args[1], ir.IntType(32))
        sign = builder.and_(builder.lshr(word, _word(24)), _word(0x80))
        size = builder.and_(word, _word(0x7FFFFFFF))
        normal = builder.sub(rounded(builder, size, 20), _word(120 << 3))
        units = builder.fmul(builder.bitcast(size, ir.FloatType()), ir.Constant(ir.FloatType(), 512.0))
        small = builder.fptosi(nearest(builder, units), ir.IntType(32))
        below = builder.icmp_unsigned("<", size, _word((127 - 6) << 23))
        return builder.trunc(builder.or_(sign, builder.select(below, small, normal)), ir.IntType(8))

    code = {types.int8: int8, types.uint8: e4m3}.get(like, bfloat16)
    element = like if like in (types.int8, types.uint8) else types.uint16
    return element(like, types.float32), code

"""What is read from assembly: instructions, loops, and the fields that loads and stores belong to."""

from tqgen.inspect import assembly, sass
from tqgen.inspect.compiling import FUSIBLE_LLVM, FUSIBLE_PTX, INEXACT_LLVM, INEXACT_PTX

DISASSEMBLED = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;             /* 0x00000a00ff017b82 */
                                                                      /* 0x000ff00000000800 */
        /*0010*/                   IMAD R2, R1, R1, RZ ;              /* 0x00000a00ff017b82 */
        /*0020*/                   FADD R3, R2, R1 ;                  /* 0x00000a00ff017b82 */
        /*0030*/              @!P0 BRA 0x20 ;                         /* 0x00000a00ff017b82 */
        /*0040*/              @P1  BRA 0x10 ;                         /* 0x00000a00ff017b82 */
        /*0050*/                   BRA 0x60 ;                         /* 0x00000a00ff017b82 */
        /*0060*/                   EXIT ;                             /* 0x00000a00ff017b82 */
        /*0070*/                   NOP;                               /* 0x00000a00ff017b82 */
"""

MODULE = """
def _store_key_units(ptr, units):
    tl.store(ptr, units)


def _write_key(block_ptr, token, head, norm):
    ptr = block_ptr + _key_codes_offset(token, head)
    _store_key_units(ptr, units)
    ptr = block_ptr + _key_norm_offset(token, head)
    _store_u16(ptr, norm)


def _store_u16(ptr, bits):
    tl.store(ptr, bits)


def _read_key(row_ptr):
    return tl.load(row_ptr)
""".strip().splitlines()

PTX = """
	.loc	1 2 5                           // m.py:2:5
	.loc	1 7 5                           // m.py:7:5 @[ m.py:7:5 ]
	.loc	1 2 5, function_name $L__info_string0, inlined_at 1 7 5
	@%p1 st.global.v4.b32 [ %rd1 + 0 ], { %r1, %r2, %r3, %r4 };
	.loc	1 13 5, function_name $L__info_string0, inlined_at 1 9 5
	@%p1 st.global.b16 [ %rd1 + 0 ], { %rs1 };
	.loc	1 17 5, function_name $L__info_string0, inlined_at 1 20 5
	@%p1 ld.global.v2.b64 { %rd1, %rd2 }, [ %rd1 + 0 ];
"""


def test_instructions_and_the_largest_loop_are_counted():
    assert sass.counts(DISASSEMBLED) == (7, 4, 0)
    assert sass.counts(DISASSEMBLED.replace("BRA 0x20", "BRA 0x40").replace("BRA 0x10", "BRA 0x50")) == (7, 0, 0)


def test_exchanges_in_the_largest_loop_are_counted():
    exchanging = DISASSEMBLED.replace("IMAD R2, R1, R1, RZ", "BAR.SYNC.DEFER_BLOCKING 0x0")
    exchanging = exchanging.replace("FADD R3, R2, R1", "@!P0 STS.128 [R2], R4")
    exchanging = exchanging.replace("LDC R1, c[0x0][0x28]", "LDS R1, [R2]")  # outside
    assert sass.counts(exchanging) == (7, 4, 2)


def test_accesses_belong_to_fields():
    widths = assembly.ptx_widths(PTX, assembly.Places(MODULE))
    assert widths == {"load": {"*": 16}, "store": {"key.codes": 16, "key.norm": 2}}


def test_operations_that_are_not_exact_are_found():
    text = """
	div.full.f32 	%f1, %f2, %f3;
	@%p1 fma.rn.ftz.f32 	%f1, %f2, %f3, %f4;
	cvt.rmi.ftz.f32.f32 	%f4, %f5;
	cvt.rni.f32.f32 	%f4, %f5;
	sqrt.rn.f32 	%f4, %f5;
	cvt.rn.f16.f32 	%h4, %f5;
	ex2.approx.ftz.f32 	%f4, %f5;
"""
    assert INEXACT_PTX.findall(text) == ["div.full.f32", "fma.rn.ftz.f32", "ex2.approx.ftz.f32"]
    assert INEXACT_PTX.findall("rsqrt.approx.f32 %f1, %f2; rcp.approx.ftz.f32 %f1, %f2;") == [
        "rsqrt.approx.f32",
        "rcp.approx.ftz.f32",
    ]
    assert FUSIBLE_PTX.search("mul.f32 %f1, %f2, %f3;") and not FUSIBLE_PTX.search("mul.rn.f32 %f1, %f2, %f3;")
    assert INEXACT_LLVM.search("%1 = fdiv fast float %2, %3") and INEXACT_LLVM.search("@llvm.amdgcn.rcp.f32(float %1)")
    assert not INEXACT_LLVM.search("%1 = fdiv <2 x float> %2, %3")
    assert FUSIBLE_LLVM.search("%1 = fmul contract float %2, %3") and not FUSIBLE_LLVM.search("fmul float %2, %3")

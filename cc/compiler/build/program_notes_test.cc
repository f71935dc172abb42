#include "cc/compiler/build/program_notes.h"

#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cc/compiler/hlo/test_module.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

// Maps each kind and what it concerns to how often it was noted.
std::map<std::string, int64_t> Counts(absl::string_view text) {
  std::map<std::string, int64_t> counts;
  for (const ProgramNote& note : NotesOf(*ParseModule(text), OpLines())) {
    counts[absl::StrCat(note.kind, ": ", note.what)] = note.count;
  }
  return counts;
}

using Expected = std::map<std::string, int64_t>;

TEST(ProgramNotesTest, ComputingInWideTypesIsNoted) {
  EXPECT_EQ(Counts(R"(
HloModule m
ENTRY e {
  a = f64[4] parameter(0)
  b = f64[4] add(a, a)
  c = s64[4] convert(b)
  ROOT d = f32[4] convert(c)
})"),
            (Expected{{"emulated: float64", 1}, {"emulated: int64", 1}}));
}

TEST(ProgramNotesTest, BringingWideTypesIsNot) {
  EXPECT_EQ(Counts(R"(
HloModule m
ENTRY e {
  a = f64[4] parameter(0)
  ROOT t = (f64[4]) tuple(a)
})"),
            Expected());
}

TEST(ProgramNotesTest, SizesOfRunTimeAreNoted) {
  EXPECT_EQ(Counts(R"(
HloModule m
ENTRY e {
  a = f32[8] parameter(0)
  n = s32[] parameter(1)
  ROOT d = f32[<=8] set-dimension-size(a, n), dimensions={0}
})"),
            (Expected{{"dynamic: f32[<=8]", 1}}));
}

TEST(ProgramNotesTest, OnlyCallsOfTheHostInLoopsAreNoted) {
  EXPECT_EQ(Counts(R"(
HloModule m
body {
  x = f32[] parameter(0)
  ROOT y = f32[] custom-call(x), custom_call_target="tf_tpu_ext_host_call", custom_call_has_side_effect=true
}
condition {
  z = f32[] parameter(0)
  ROOT p = pred[] custom-call(z), custom_call_target="tf_tpu_ext_transfer", custom_call_has_side_effect=true
}
ENTRY e {
  a = f32[] parameter(0)
  b = f32[] custom-call(a), custom_call_target="tf_tpu_ext_host_call", custom_call_has_side_effect=true
  ROOT w = f32[] while(b), condition=condition, body=body
})"),
            (Expected{{"host call in a loop: ", 2}}));
}

TEST(ProgramNotesTest, SoAreTransfersOfProgramsForTargets) {
  EXPECT_EQ(Counts(R"(
HloModule m
body {
  x = f32[] parameter(0)
  t = token[] after-all()
  s = (f32[], u32[], token[]) send(x, t), channel_id=1, is_host_transfer=true
  d = token[] send-done(s), channel_id=1, is_host_transfer=true
  f = (f32[], token[]) infeed(d)
  r = (f32[], u32[], token[]) recv(d), channel_id=2, is_host_transfer=true
  q = (f32[], token[]) recv-done(r), channel_id=2, is_host_transfer=true
  ROOT y = f32[] get-tuple-element(q), index=0
}
condition {
  z = f32[] parameter(0)
  ROOT p = pred[] compare(z, z), direction=LT
}
ENTRY e {
  a = f32[] parameter(0)
  ROOT w = f32[] while(a), condition=condition, body=body
})"),
            (Expected{{"host call in a loop: ", 2}}));
}

TEST(ProgramNotesTest, ProductsThatFillTheMatrixUnitAreNot) {
  const auto product = [](int rows, int summed, int columns) {
    return Counts(absl::StrCat(
        "HloModule m\nENTRY e {\n  a = f32[", rows, ",", summed, "] parameter(0)\n  b = f32[",
        summed, ",", columns, "] parameter(1)\n  ROOT c = f32[", rows, ",", columns,
        "] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}"));
  };
  EXPECT_EQ(product(64, 256, 128), Expected());
  // An eighth of the lanes.
  EXPECT_EQ(product(64, 256, 16), (Expected{{"small product: f32[64,256] x f32[256,16]", 1}}));
  EXPECT_EQ(product(1, 256, 128), (Expected{{"small product: f32[1,256] x f32[256,128]", 1}}));
  EXPECT_EQ(product(64, 3, 128), (Expected{{"small product: f32[64,3] x f32[3,128]", 1}}));
  EXPECT_EQ(product(4, 256, 128), Expected());
}

TEST(ProgramNotesTest, TheFirstOpIsNoArgument) {
  EXPECT_EQ(FirstOp(*ParseModule(R"(
HloModule m
ENTRY e {
  a = f32[4] parameter(0), metadata={op_name="XLA_Args"}
  b = f32[4] copy(a)
  c = f32[4] add(b, b), metadata={op_name="outer;while/Add"}
  ROOT d = f32[4] multiply(c, c), metadata={op_name="Mul"}
})")),
            "while/Add");
  EXPECT_EQ(FirstOp(*ParseModule("HloModule m\nENTRY e {\n  ROOT a = f32[] parameter(0)\n}")), "");
}

TEST(ProgramNotesTest, TheOpIsNamed) {
  const auto notes = NotesOf(*ParseModule(R"(
HloModule m
ENTRY e {
  a = f64[4] parameter(0)
  ROOT b = f64[4] add(a, a), metadata={op_name="outer;while/Add"}
})"),
                             OpLines());
  ASSERT_EQ(notes.size(), 1);
  EXPECT_EQ(notes[0].op, "while/Add");
  EXPECT_EQ(notes[0].source, "");
}

}  // namespace
}  // namespace tf_tpu_ext

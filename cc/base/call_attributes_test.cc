#include "cc/base/call_attributes.h"

#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "xla/ffi/api/c_api.h"

namespace tf_tpu_ext {
namespace {

TEST(CallAttributesTest, TextIsAnMlirDictionary) {
  CallAttributes attributes;
  EXPECT_EQ(attributes.ToText(), "{}");
  attributes.SetString("op", "relu");
  attributes.SetInteger("work", -3);
  EXPECT_EQ(attributes.ToText(), "{op = \"relu\", work = -3 : i64}");
  attributes.SetString("op", "say \"hi\"\\\n");
  EXPECT_EQ(attributes.ToText(), "{op = \"say \\\"hi\\\"\\\\\\0A\", work = -3 : i64}");
}

TEST(CallAttributesTest, ReadsWhatItWrote) {
  for (const std::string& value :
       {std::string(), std::string("a = 3 : i64, b"), std::string("}\", {\\"),
        std::string("\0\x7f\xff\t", 4), std::string("\\0A")}) {
    CallAttributes attributes;
    attributes.SetString("before", value);
    attributes.SetInteger("number", std::numeric_limits<int64_t>::min());
    attributes.SetString("text", value);
    const auto parsed = CallAttributes::Parse(attributes.ToText());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed->GetString("before"), value);
    EXPECT_EQ(*parsed->GetString("text"), value);
    EXPECT_EQ(*parsed->GetInteger("number"), std::numeric_limits<int64_t>::min());
    EXPECT_EQ(parsed->ToText(), attributes.ToText());
  }
}

TEST(CallAttributesTest, RefusesOtherTexts) {
  for (const char* text :
       {"", "{", "}", "op = \"relu\"", "{op}", "{op = relu}", "{op = \"relu}", "{op = \"\\4\"}",
        "{op = \"\\3 : i64}", "{work = 3}", "{work = x : i64}", "{a = \"1\" b = \"2\"}"}) {
    EXPECT_EQ(CallAttributes::Parse(text).status().code(), absl::StatusCode::kInternal) << text;
  }
}

TEST(CallAttributesTest, WhatIsMissingIsAnError) {
  CallAttributes attributes;
  attributes.SetInteger("work", 3);
  EXPECT_TRUE(attributes.Has("work"));
  EXPECT_FALSE(attributes.Has("op"));
  const absl::Status missing = attributes.GetString("op").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(missing.message(),
            "The configuration of a custom call has no text 'op': {work = 3 : i64}");
  EXPECT_FALSE(attributes.GetString("work").ok());
  attributes.SetString("work", "much");
  EXPECT_FALSE(attributes.GetInteger("work").ok());
}

TEST(CallAttributesTest, TakesTextsAndIntegersOfAFrame) {
  const std::string names[] = {"flag", "op", "work"};
  XLA_FFI_ByteSpan spans[3];
  XLA_FFI_ByteSpan* name_pointers[3];
  for (int i = 0; i < 3; ++i) {
    spans[i] = {names[i].data(), names[i].size()};
    name_pointers[i] = &spans[i];
  }
  bool flag = true;
  int64_t work = 7;
  XLA_FFI_Scalar flag_scalar = {XLA_FFI_DataType_PRED, &flag};
  XLA_FFI_Scalar work_scalar = {XLA_FFI_DataType_S64, &work};
  XLA_FFI_ByteSpan op = {"relu", 4};
  void* values[] = {&flag_scalar, &op, &work_scalar};
  XLA_FFI_AttrType types[] = {XLA_FFI_AttrType_SCALAR, XLA_FFI_AttrType_STRING,
                              XLA_FFI_AttrType_SCALAR};
  XLA_FFI_Attrs attrs = {};
  attrs.size = 3;
  attrs.types = types;
  attrs.names = name_pointers;
  attrs.attrs = values;
  EXPECT_EQ(CallAttributes(attrs).ToText(), "{op = \"relu\", work = 7 : i64}");
}

TEST(CallAttributesTest, CountsFitAnInt) {
  CallAttributes attributes;
  for (const int64_t count : {int64_t{0}, int64_t{2147483647}}) {
    attributes.SetInteger("n", count);
    EXPECT_EQ(*attributes.GetCount("n"), count);
  }
  for (const int64_t none : {int64_t{-1}, int64_t{2147483648}}) {
    attributes.SetInteger("n", none);
    EXPECT_EQ(attributes.GetCount("n").status().message(),
              absl::StrCat("The configuration of a custom call has ", none,
                           " as its count 'n': {n = ", none, " : i64}"));
  }
  EXPECT_FALSE(attributes.GetCount("m").ok());
}

}  // namespace
}  // namespace tf_tpu_ext

#include "cc/base/json.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

// Reads the text with a parser that is not ours.
Struct Read(const std::string& text) {
  Struct read;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &read);
  EXPECT_TRUE(status.ok()) << status << "\n" << text;
  return read;
}

TEST(JsonTest, EmptyObject) {
  EXPECT_EQ(JsonObject().Text(), "{}");
  EXPECT_EQ(JsonArray({}), "[]");
}

TEST(JsonTest, EveryKindOfMember) {
  const std::string text = JsonObject()
                               .String("name", "a program")
                               .Integer("id", -7)
                               .Integers("mesh", std::vector<int>{2, 2, 1, 2})
                               .Number("seconds", 0.25)
                               .Bool("restored", true)
                               .Bool("stacked", false)
                               .Null("cache")
                               .Object("bytes", JsonObject().Integer("total", 8))
                               .Text();
  const Struct read = Read(text);
  const auto& fields = read.fields();
  ASSERT_EQ(fields.size(), 8);
  EXPECT_EQ(fields.at("bytes").struct_value().fields().at("total").number_value(), 8);
  EXPECT_EQ(fields.at("name").string_value(), "a program");
  EXPECT_EQ(fields.at("id").number_value(), -7);
  EXPECT_EQ(fields.at("seconds").number_value(), 0.25);
  EXPECT_TRUE(fields.at("restored").bool_value());
  ASSERT_EQ(fields.at("stacked").kind_case(), Value::kBoolValue);
  EXPECT_FALSE(fields.at("stacked").bool_value());
  EXPECT_EQ(fields.at("cache").kind_case(), Value::kNullValue);
  std::vector<double> mesh;
  for (const Value& value : fields.at("mesh").list_value().values()) {
    mesh.push_back(value.number_value());
  }
  EXPECT_EQ(mesh, (std::vector<double>{2, 2, 1, 2}));
}

TEST(JsonTest, KeepsTheOrderOfTheCalls) {
  EXPECT_EQ(JsonObject().Integer("b", 1).Integer("a", 2).Text(), "{\"b\":1,\"a\":2}");
}

TEST(JsonTest, EscapesWhatJsonWantsEscaped) {
  std::string all;
  for (int c = 1; c < 128; ++c) all += static_cast<char>(c);
  all += "\xc3\xa9";  // an e with an acute accent, in UTF-8
  EXPECT_EQ(Read(JsonObject().String("text", all).Text()).fields().at("text").string_value(), all);
  EXPECT_EQ(JsonObject().String("\"", "C:\\x\n").Text(), "{\"\\\"\":\"C:\\\\x\\u000a\"}");
}

TEST(JsonTest, IntegersAreExact) {
  EXPECT_EQ(JsonObject().Integer("n", std::numeric_limits<int64_t>::min()).Text(),
            "{\"n\":-9223372036854775808}");
}

TEST(JsonTest, NumbersReadBackTheSame) {
  for (const double value : {0.1, 1.0 / 3, 1e-300, -2.5e300, 0.0}) {
    const std::string text = JsonObject().Number("n", value).Text();
    EXPECT_EQ(Read(text).fields().at("n").number_value(), value) << text;
  }
}

TEST(JsonTest, NumbersThatJsonLacksBecomeNull) {
  for (const double value :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(JsonObject().Number("n", value).Text(), "{\"n\":null}");
  }
}

TEST(JsonTest, ArrayAsAMember) {
  EXPECT_EQ(JsonObject().Objects("all", {JsonObject().Integer("a", 1), JsonObject()}).Text(),
            "{\"all\":[{\"a\":1},{}]}");
}

TEST(JsonTest, ArrayOfObjects) {
  EXPECT_EQ(JsonArray({JsonObject().Integer("a", 1)}), "[{\"a\":1}]");
  EXPECT_EQ(JsonArray({JsonObject().Integer("a", 1), JsonObject()}), "[{\"a\":1},{}]");
}

}  // namespace
}  // namespace tf_tpu_ext

#include "cc/embedding/quantization.h"

#include <cmath>
#include <string>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

tensorflow::tpu::SimulatedQuantization ParseQuantization(const std::string& text) {
  tensorflow::tpu::SimulatedQuantization options;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &options)) << text;
  return options;
}

TEST(QuantizationTest, TakesTheNearestBucket) {
  const auto options = ParseQuantization(
      "enabled: true num_buckets: 5 clipping_limits { lower { value: -1 } upper { value: 1 } }");
  ASSERT_TRUE(CheckQuantization("video", options).ok());
  for (int sixteenth = -24; sixteenth < 24; ++sixteenth) {
    const float value = static_cast<float>(sixteenth) / 16;
    float nearest = -1;
    for (float bucket : {-0.5f, 0.0f, 0.5f, 1.0f}) {
      // Halfway between two, it is the upper one.
      if (std::abs(value - bucket) <= std::abs(value - nearest)) nearest = bucket;
    }
    EXPECT_FLOAT_EQ(Quantize(options, value), nearest) << value;
  }
}

TEST(QuantizationTest, NeedsBucketsAndLimits) {
  EXPECT_TRUE(CheckQuantization("video", ParseQuantization("enabled: false")).ok());
  const std::string limits = "clipping_limits { lower { value: 0 } upper { value: 1 } }";
  for (const std::string& text :
       {std::string("num_buckets: 4"), "num_buckets: 1 " + limits, limits,
        std::string("num_buckets: 4 clipping_limits { lower { value: 0 } }"),
        std::string("num_buckets: 4 clipping_limits { lower { value: 1 } upper { value: 1 } }")}) {
    const absl::Status status =
        CheckQuantization("video", ParseQuantization("enabled: true " + text));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("table 'video'"), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace tf_tpu_ext

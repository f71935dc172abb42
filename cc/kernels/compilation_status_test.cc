#include "cc/kernels/compilation_status.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(CompilationStatusTest, SuccessIsTheEmptyMessage) {
  EXPECT_EQ(SerializeCompilationStatus(absl::OkStatus()), "");
  EXPECT_TRUE(ParseCompilationStatus("").ok());
}

TEST(CompilationStatusTest, BytesAreThoseOfTheProtocolBuffer) {
  // status_code = 3, status_error_message = "bad".
  EXPECT_EQ(SerializeCompilationStatus(absl::InvalidArgumentError("bad")),
            std::string("\x08\x03\x12\x03"
                        "bad"));
}

TEST(CompilationStatusTest, EveryCodeComesBack) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(ParseCompilationStatus(SerializeCompilationStatus(status)), status);
  }
}

TEST(CompilationStatusTest, MessagesOfAnyLengthComeBack) {
  // Around the lengths at which the varint gets longer.
  for (size_t length : {0, 1, 127, 128, 129, 16383, 16384, 300000}) {
    std::string message(length, 'x');
    if (length > 2) message[length / 2] = '\0';
    const absl::Status status = absl::UnimplementedError(message);
    const absl::Status parsed = ParseCompilationStatus(SerializeCompilationStatus(status));
    EXPECT_TRUE(absl::IsUnimplemented(parsed));
    EXPECT_EQ(parsed.message(), message) << length;
  }
}

TEST(CompilationStatusTest, FieldsInAnyOrder) {
  EXPECT_EQ(ParseCompilationStatus("\x12\x02no\x08\x05"), absl::NotFoundError("no"));
  EXPECT_EQ(ParseCompilationStatus("\x08\x05"), absl::NotFoundError(""));
}

TEST(CompilationStatusTest, MalformedBytesAreAnError) {
  const std::string whole = SerializeCompilationStatus(absl::InternalError("some message"));
  const absl::string_view malformed[] = {
      "\x08",                  // no value
      "\x12\x05\x66our",       // a length beyond the end
      "\x08\x80\x80",          // a varint without an end
      "\x18\x01",              // an unknown field
      "\x0d\x01\x02\x03\x04",  // another wire type
      "text",
      "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  // a varint of more than 64 bits
      "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  // the greatest length
  };
  for (absl::string_view bytes : malformed) {
    const absl::Status status = ParseCompilationStatus(bytes);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << absl::string_view(bytes) << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "compilation_status")) << status;
  }
  // Truncated anywhere except between its two fields.
  for (size_t size = 1; size < whole.size(); ++size) {
    if (size == 2) continue;
    const absl::Status status = ParseCompilationStatus(absl::string_view(whole).substr(0, size));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << size << ": " << status;
  }
}

}  // namespace
}  // namespace tf_tpu_ext

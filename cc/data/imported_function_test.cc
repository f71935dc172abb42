#include "cc/data/imported_function.h"

#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "tsl/platform/host_info.h"

namespace tf_tpu_ext {
namespace {

int ReplacedHostname(char* name, size_t size) {
  std::strncpy(name, "replaced", size);
  return 0;
}

int NotExported() { return 0; }

void* Address(int (*function)(char*, size_t)) { return reinterpret_cast<void*>(function); }

TEST(ImportedFunctionTest, RedirectsCallsOfOtherLibrariesAndRestoresThem) {
  const std::string stock = tsl::port::Hostname();
  ASSERT_NE(stock, "replaced");

  absl::StatusOr<ImportedFunction> redirected =
      ImportedFunction::Redirect(Address(&gethostname), Address(&ReplacedHostname));
  ASSERT_TRUE(redirected.ok()) << redirected.status();
  EXPECT_GE(redirected->size(), 1);
  EXPECT_EQ(tsl::port::Hostname(), "replaced");

  // The replacement's library still reaches the original function.
  char own[256] = "";
  gethostname(own, sizeof(own));
  EXPECT_EQ(own, stock);

  ASSERT_TRUE(redirected->Restore().ok());
  EXPECT_EQ(redirected->size(), 0);
  EXPECT_EQ(tsl::port::Hostname(), stock);
  EXPECT_TRUE(redirected->Restore().ok()) << "a second time changes nothing";
}

TEST(ImportedFunctionTest, RedirectsAgainAfterRestoring) {
  for (int i = 0; i < 3; ++i) {
    absl::StatusOr<ImportedFunction> redirected =
        ImportedFunction::Redirect(Address(&gethostname), Address(&ReplacedHostname));
    ASSERT_TRUE(redirected.ok()) << redirected.status();
    EXPECT_EQ(tsl::port::Hostname(), "replaced");
    ASSERT_TRUE(redirected->Restore().ok());
    EXPECT_NE(tsl::port::Hostname(), "replaced");
  }
}

TEST(ImportedFunctionTest, SaysThatTheFunctionHasNoName) {
  absl::StatusOr<ImportedFunction> redirected =
      ImportedFunction::Redirect(reinterpret_cast<void*>(&NotExported), Address(&ReplacedHostname));
  EXPECT_TRUE(absl::IsNotFound(redirected.status())) << redirected.status();
}

TEST(ImportedFunctionTest, SaysThatNobodyCallsTheFunction) {
  // A function of libc that neither TensorFlow nor its libraries use.
  absl::StatusOr<ImportedFunction> redirected =
      ImportedFunction::Redirect(reinterpret_cast<void*>(&swab), Address(&ReplacedHostname));
  EXPECT_TRUE(absl::IsNotFound(redirected.status())) << redirected.status();
  EXPECT_NE(redirected.status().message().find("swab"), std::string::npos) << redirected.status();
}

}  // namespace
}  // namespace tf_tpu_ext

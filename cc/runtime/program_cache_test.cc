#include "cc/runtime/program_cache.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using ProgramPointer = std::shared_ptr<Program>;

// The cache never looks into a program, so an arbitrary address stands in for it.
ProgramPointer NamedProgram() {
  auto owner = std::make_shared<char>();
  return ProgramPointer(owner, reinterpret_cast<Program*>(owner.get()));
}

ProgramLimits DefaultLimits() { return ProgramLimits(); }

TEST(ProgramCacheTest, CompilesAKeyOnce) {
  ProgramCache cache(DefaultLimits);
  int compilations = 0;
  int64_t id = 0;
  const auto compile = [&](int64_t given, CompilationRecord* record) {
    ++compilations;
    id = given;
    record->name = "step";
    record->argument_shapes = "[2]";
    return absl::StatusOr<ProgramPointer>(NamedProgram());
  };
  const auto first = cache.GetOrCompile("a", compile);
  const auto second = cache.GetOrCompile("a", compile);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(compilations, 1);
  EXPECT_EQ(*cache.Find(id), *first);

  const std::vector<CompilationRecord> records = cache.Records();
  ASSERT_EQ(records.size(), 1);
  EXPECT_EQ(records[0].program_id, id);
  EXPECT_EQ(records[0].name, "step");
  EXPECT_EQ(records[0].argument_shapes, "[2]");
  EXPECT_EQ(records[0].hits, 1);
  EXPECT_EQ(records[0].error, "");
}

TEST(ProgramCacheTest, ArgumentsGetTheirNamesLater) {
  ProgramCache cache(DefaultLimits);
  int64_t id = 0;
  const auto compile = [&](int64_t given, CompilationRecord* record) {
    id = given;
    record->arguments.resize(2);
    return absl::StatusOr<ProgramPointer>(NamedProgram());
  };
  ASSERT_TRUE(cache.GetOrCompile("a", compile).ok());
  // With another number of arguments, the names are not those of the program.
  cache.NameArguments(id, {{"images", false}});
  EXPECT_EQ(cache.Records()[0].arguments[0].name, "");
  cache.NameArguments(id + 1, {{"other", false}, {"kernel", true}});
  cache.NameArguments(id, {{"images", false}, {"kernel", true}});
  const std::vector<RecordedArgument> arguments = cache.Records()[0].arguments;
  EXPECT_EQ(arguments[0].name, "images");
  EXPECT_FALSE(arguments[0].is_variable);
  EXPECT_EQ(arguments[1].name, "kernel");
  EXPECT_TRUE(arguments[1].is_variable);
}

TEST(ProgramCacheTest, KeysHaveProgramsOfTheirOwn) {
  ProgramCache cache(DefaultLimits);
  std::vector<int64_t> ids;
  std::vector<ProgramPointer> programs;
  for (const char* key : {"a", "b", ""}) {
    programs.push_back(*cache.GetOrCompile(key, [&](int64_t id, CompilationRecord*) {
      ids.push_back(id);
      return absl::StatusOr<ProgramPointer>(NamedProgram());
    }));
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(*cache.Find(ids[i]), programs[i]);
    // Records are in the order of compilation.
    EXPECT_EQ(cache.Records()[i].program_id, ids[i]);
    for (int j = 0; j < i; ++j) {
      EXPECT_NE(ids[i], ids[j]);
      EXPECT_NE(programs[i], programs[j]);
    }
  }
}

TEST(ProgramCacheTest, UnknownProgramIsNotFound) {
  const ProgramCache cache(DefaultLimits);
  const absl::Status status = cache.Find(17).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "program 17")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "_TPUCompileMlir")) << status;
}

TEST(ProgramCacheTest, FailureIsReportedAndTriedAgain) {
  ProgramCache cache(DefaultLimits);
  int tries = 0;
  int64_t failed_id = 0;
  const auto compile = [&](int64_t id, CompilationRecord* record) {
    record->name = "step";
    if (++tries == 1) {
      failed_id = id;
      return absl::StatusOr<ProgramPointer>(absl::UnimplementedError("no kernel"));
    }
    return absl::StatusOr<ProgramPointer>(NamedProgram());
  };
  EXPECT_EQ(cache.GetOrCompile("a", compile).status(), absl::UnimplementedError("no kernel"));
  EXPECT_TRUE(absl::IsNotFound(cache.Find(failed_id).status()));
  EXPECT_TRUE(cache.GetOrCompile("a", compile).ok());
  EXPECT_TRUE(cache.GetOrCompile("a", compile).ok());
  EXPECT_EQ(tries, 2);

  const std::vector<CompilationRecord> records = cache.Records();
  ASSERT_EQ(records.size(), 2);
  EXPECT_EQ(records[0].name, "step");
  EXPECT_TRUE(absl::StrContains(records[0].error, "no kernel"));
  EXPECT_EQ(records[1].error, "");
  EXPECT_EQ(records[1].hits, 1);
  EXPECT_EQ(records[0].same_as, 0);
  EXPECT_EQ(records[1].same_as, records[0].program_id);
}

TEST(ProgramCacheTest, AnExceptionIsAFailure) {
  ProgramCache cache(DefaultLimits);
  const absl::Status status =
      cache
          .GetOrCompile(
              "a",
              [](int64_t id, CompilationRecord* record) -> absl::StatusOr<ProgramPointer> {
                record->name = "step";
                throw std::runtime_error("no such dimension");
              })
          .status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "'step': no such dimension")) << status;
  EXPECT_EQ(cache.Records()[0].error, status.ToString());
  EXPECT_TRUE(
      cache.GetOrCompile("a", [](int64_t, CompilationRecord*) { return NamedProgram(); }).ok());
}

TEST(ProgramCacheTest, ConcurrentCallersWaitForOneCompilation) {
  constexpr int kCallers = 8;
  ProgramCache cache(DefaultLimits);
  std::atomic<int> compilations{0};
  absl::BlockingCounter arriving(kCallers);
  std::vector<ProgramPointer> programs(kCallers);
  std::vector<std::thread> threads;
  for (int caller = 0; caller < kCallers; ++caller) {
    threads.emplace_back([&, caller] {
      arriving.DecrementCount();
      programs[caller] = *cache.GetOrCompile("a", [&](int64_t, CompilationRecord*) {
        ++compilations;
        arriving.Wait();
        return absl::StatusOr<ProgramPointer>(NamedProgram());
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compilations, 1);
  for (const ProgramPointer& program : programs) EXPECT_EQ(program, programs[0]);
  EXPECT_EQ(cache.Records()[0].hits, kCallers - 1);
}

TEST(ProgramCacheTest, ConcurrentCallersTryAFailureOneAfterTheOther) {
  constexpr int kCallers = 4;
  ProgramCache cache(DefaultLimits);
  std::atomic<int> tries{0}, at_once{0}, failures{0};
  absl::BlockingCounter arriving(kCallers);
  std::vector<std::thread> threads;
  for (int caller = 0; caller < kCallers; ++caller) {
    threads.emplace_back([&] {
      arriving.DecrementCount();
      const auto program = cache.GetOrCompile("a", [&](int64_t, CompilationRecord*) {
        EXPECT_EQ(++at_once, 1);
        if (tries == 0) arriving.Wait();
        --at_once;
        if (++tries == 1) return absl::StatusOr<ProgramPointer>(absl::InternalError("once"));
        return absl::StatusOr<ProgramPointer>(NamedProgram());
      });
      if (!program.ok()) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tries, 2);
  EXPECT_EQ(failures, 1);
}

TEST(ProgramCacheTest, ACompilationHoldsUpNoOtherKey) {
  ProgramCache cache(DefaultLimits);
  absl::Notification compiling, release;
  std::thread slow([&] {
    const auto program = cache.GetOrCompile("slow", [&](int64_t, CompilationRecord*) {
      compiling.Notify();
      release.WaitForNotification();
      return absl::StatusOr<ProgramPointer>(NamedProgram());
    });
    EXPECT_TRUE(program.ok());
  });
  compiling.WaitForNotification();
  const auto quick = [](int64_t, CompilationRecord*) {
    return absl::StatusOr<ProgramPointer>(NamedProgram());
  };
  EXPECT_TRUE(cache.GetOrCompile("quick", quick).ok());
  EXPECT_TRUE(cache.GetOrCompile("quick", quick).ok());
  EXPECT_EQ(cache.Records().size(), 1);
  release.Notify();
  slow.join();
  EXPECT_EQ(cache.Records().size(), 2);
}

TEST(ProgramCacheTest, ADroppedProgramEndsWithItsLastUser) {
  ProgramCache cache(DefaultLimits);
  std::vector<int64_t> ids;
  const auto compile = [&](int64_t id, CompilationRecord* record) {
    ids.push_back(id);
    record->name = "step";
    return absl::StatusOr<ProgramPointer>(NamedProgram());
  };
  ProgramPointer running = *cache.GetOrCompile("a", compile);
  const std::weak_ptr<Program> program = running;
  cache.Drop("a");
  EXPECT_FALSE(program.expired());
  running.reset();
  EXPECT_TRUE(program.expired());
  EXPECT_FALSE(cache.Find(ids[0]).ok());
  EXPECT_EQ(cache.Records().size(), 1);
  cache.Drop("a");
  cache.Drop("never there");
  // A caller that asks again anyway gets a new program.
  EXPECT_TRUE(cache.GetOrCompile("a", compile).ok());
  EXPECT_EQ(ids.size(), 2);
  EXPECT_TRUE(cache.Find(ids[1]).ok());
}

// A cache with limits, each of whose programs takes `bytes`.
class LimitedCacheTest : public ::testing::Test {
 protected:
  // Returns whether the program was compiled for this call.
  bool Get(const std::string& key, int64_t bytes = 1) {
    bool compiled = false;
    const auto program = cache_.GetOrCompile(key, [&](int64_t id, CompilationRecord* record) {
      compiled = true;
      last_id_ = id;
      record->bytes = bytes;
      return absl::StatusOr<ProgramPointer>(NamedProgram());
    });
    EXPECT_TRUE(program.ok());
    return compiled;
  }

  ProgramLimits limits_;
  ProgramCache cache_{[this] { return limits_; }};
  int64_t last_id_ = 0;
};

TEST_F(LimitedCacheTest, TheLeastRecentlyUsedGoes) {
  limits_.programs = 2;
  EXPECT_TRUE(Get("a"));
  const int64_t a = last_id_;
  EXPECT_TRUE(Get("b"));
  const int64_t b = last_id_;
  EXPECT_FALSE(Get("a"));
  EXPECT_TRUE(Get("c"));
  EXPECT_TRUE(cache_.Find(a).ok());
  EXPECT_FALSE(cache_.Find(b).ok());
  EXPECT_FALSE(Get("a"));
  EXPECT_TRUE(Get("b"));
  EXPECT_TRUE(Get("c"));
  EXPECT_EQ(cache_.Records().size(), 5);
}

TEST_F(LimitedCacheTest, SizesCount) {
  limits_.bytes = 100;
  EXPECT_TRUE(Get("a", 40));
  EXPECT_TRUE(Get("b", 60));
  EXPECT_FALSE(Get("a"));
  EXPECT_TRUE(Get("c", 60));  // replaces b
  EXPECT_FALSE(Get("a"));
  EXPECT_FALSE(Get("c"));
  cache_.Drop("a");
  EXPECT_TRUE(Get("d", 40));
  EXPECT_FALSE(Get("c"));
}

TEST_F(LimitedCacheTest, AProgramAboveTheLimitIsKeptUntilTheNextOne) {
  limits_.bytes = 10;
  EXPECT_TRUE(Get("large", 1000));
  EXPECT_FALSE(Get("large"));
  EXPECT_TRUE(Get("small"));
  EXPECT_FALSE(Get("small"));
  EXPECT_TRUE(Get("large", 1000));
}

TEST_F(LimitedCacheTest, WhoHasAProgramKeepsItAndMayFindIt) {
  limits_.programs = 1;
  EXPECT_TRUE(Get("running"));
  const int64_t id = last_id_;
  ProgramPointer running = *cache_.Find(id);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Get(std::to_string(i)));
  EXPECT_EQ(*cache_.Find(id), running);
  running.reset();
  EXPECT_FALSE(cache_.Find(id).ok());
}

TEST_F(LimitedCacheTest, LaterLimitsCount) {
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Get(std::to_string(i)));
  limits_.programs = 10;
  EXPECT_TRUE(Get("new"));
  for (int i = 99; i > 90; --i) EXPECT_FALSE(Get(std::to_string(i))) << i;
  EXPECT_TRUE(Get("90"));
}

TEST_F(LimitedCacheTest, RecordsEndToo) {
  constexpr int kMore = 10;
  limits_.programs = 10;
  for (size_t i = 0; i < ProgramCache::kMaxRecords + kMore; ++i) Get(std::to_string(i));
  const std::vector<CompilationRecord> records = cache_.Records();
  EXPECT_EQ(records.size(), ProgramCache::kMaxRecords);
  EXPECT_EQ(records.front().program_id, kMore + 1);
  EXPECT_EQ(records.back().program_id, last_id_);
}

}  // namespace
}  // namespace tf_tpu_ext

#include "cc/data/pipeline.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

constexpr int64_t kElement = 1, kEnd = 2, kError = 3;
constexpr int64_t kFloats = 1 << 14;
constexpr int64_t kBegin = 64;

// The other process's end of an iteration.
class Writer {
 public:
  explicit Writer(int requests) {
    int64_t number = 0;
    std::array<int, ElementSlots::kSlots + 1> files;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(files))> control;
    iovec data = {&number, sizeof(number)};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    EXPECT_EQ(recvmsg(requests, &message, 0), static_cast<ssize_t>(sizeof(number)));
    std::memcpy(files.data(), CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(files));
    for (const int file : files) files_.emplace_back(file);
  }

  int socket() const { return files_[0].get(); }

  void Say(int64_t kind, int64_t slot, int64_t size) const {
    const std::array<int64_t, 3> message = {kind, slot, size};
    EXPECT_EQ(send(socket(), message.data(), sizeof(message), MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof(message)));
  }

  // Sends floats of one value, enough that they are not copied.
  void SendElement(int slot, float value) const {
    const std::array<int64_t, kBegin / 8> words = {
        1, tensorflow::DT_FLOAT, kBegin, 4 * kFloats, 1, kFloats};
    const std::vector<float> floats(kFloats, value);
    const int file = files_[1 + slot].get();
    EXPECT_EQ(pwrite(file, words.data(), kBegin, 0), kBegin);
    EXPECT_EQ(pwrite(file, floats.data(), 4 * kFloats, kBegin), 4 * kFloats);
    Say(kElement, slot, kBegin + 4 * kFloats);
  }

  void SendError(int slot, const std::string& text) const {
    EXPECT_EQ(pwrite(files_[1 + slot].get(), text.data(), text.size(), 0),
              static_cast<ssize_t>(text.size()));
    Say(kError, slot, static_cast<int64_t>(text.size()));
  }

  // A slot that has become free, or -1.
  int64_t FreeSlot() const {
    int64_t slot = -1;
    return recv(socket(), &slot, sizeof(slot), MSG_DONTWAIT) == sizeof(slot) ? slot : -1;
  }

 private:
  std::vector<OwnedFile> files_;
};

class PipelineTest : public ::testing::Test {
 protected:
  PipelineTest() : number_(Pipeline::Add()), pipeline_(*Pipeline::Find(number_)) {
    AddProcess();
    iteration_ = *pipeline_->Iterate();
  }
  ~PipelineTest() override { Pipeline::Remove(number_); }

  void AddProcess() {
    std::array<int, 2> ends;
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()), 0);
    pipeline_->AddProcess(OwnedFile(ends[0]));
    requests_.emplace_back(ends[1]);
  }

  Writer NewWriter(int process = 0) { return Writer(requests_[process].get()); }

  // The first value of the next element, or -1 at the end.
  float Next() {
    std::vector<Tensor> element;
    bool end = false;
    const absl::Status status = iteration_->Next(&element, &end);
    EXPECT_TRUE(status.ok()) << status;
    return status.ok() && !end ? element.at(0).flat<float>()(0) : -1;
  }

  std::string Error() {
    std::vector<Tensor> element;
    bool end = false;
    return std::string(iteration_->Next(&element, &end).message());
  }

  const int64_t number_;
  const std::shared_ptr<Pipeline> pipeline_;
  std::vector<OwnedFile> requests_;
  std::unique_ptr<PipelineIteration> iteration_;
};

TEST_F(PipelineTest, GivesElementsInOrderUntilTheEnd) {
  const Writer writer = NewWriter();
  for (int i = 0; i < 3; ++i) writer.SendElement(i, static_cast<float>(i));
  writer.Say(kEnd, 0, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Next(), i);
  EXPECT_EQ(Next(), -1);
  EXPECT_EQ(Next(), -1);
}

TEST_F(PipelineTest, ASlotIsFreeWhenItsTensorsAreGone) {
  const Writer writer = NewWriter();
  writer.SendElement(5, 7);
  std::vector<Tensor> element;
  bool end = false;
  ASSERT_TRUE(iteration_->Next(&element, &end).ok());
  Tensor copy = element[0];
  element.clear();
  EXPECT_EQ(writer.FreeSlot(), -1);
  EXPECT_EQ(copy.flat<float>()(kFloats - 1), 7);
  copy = Tensor();
  EXPECT_EQ(writer.FreeSlot(), 5);
}

TEST_F(PipelineTest, KeptElementsLeaveSlots) {
  const Writer writer = NewWriter();
  std::vector<std::vector<Tensor>> kept(2 * ElementSlots::kSlots);
  int64_t slot = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    writer.SendElement(static_cast<int>(slot), static_cast<float>(i));
    bool end = false;
    ASSERT_TRUE(iteration_->Next(&kept[i], &end).ok());
    if (i + 1 < ElementSlots::kMostKept) {
      slot = static_cast<int64_t>(i) + 1;
    } else if (i + 1 == ElementSlots::kMostKept) {
      slot = ElementSlots::kSlots - 1;
    } else {
      EXPECT_EQ(writer.FreeSlot(), slot);
    }
  }
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i][0].flat<float>()(9), i);
}

TEST_F(PipelineTest, TensorsOutliveTheIteration) {
  std::vector<Tensor> element;
  {
    const Writer writer = NewWriter();
    writer.SendElement(0, 3);
    bool end = false;
    ASSERT_TRUE(iteration_->Next(&element, &end).ok());
    iteration_.reset();
    char byte;
    EXPECT_EQ(recv(writer.socket(), &byte, 1, 0), 0) << "the other process sees the end";
  }
  EXPECT_EQ(element[0].flat<float>()(kFloats - 1), 3);
}

TEST_F(PipelineTest, AForkLeavesItAlone) {
  const Writer writer = NewWriter();
  writer.SendElement(0, 1);
  std::vector<Tensor> element;
  bool end = false;
  ASSERT_TRUE(iteration_->Next(&element, &end).ok());
  const pid_t fork_of_this = fork();
  if (fork_of_this == 0) {
    element.clear();
    iteration_.reset();
    _exit(0);
  }
  ASSERT_EQ(waitpid(fork_of_this, nullptr, 0), fork_of_this);
  EXPECT_EQ(writer.FreeSlot(), -1);
  writer.SendElement(1, 2);
  EXPECT_EQ(Next(), 2);
}

TEST_F(PipelineTest, AnErrorEndsTheIteration) {
  const Writer writer = NewWriter();
  writer.SendElement(0, 1);
  writer.SendError(1, "division by zero");
  EXPECT_EQ(Next(), 1);
  EXPECT_EQ(Error(), "division by zero");
  EXPECT_EQ(Error(), "division by zero");
}

TEST_F(PipelineTest, WhatEndsAWait) {
  const Writer writer = NewWriter();
  const auto ended_by = [this](auto end) {
    iteration_ = *pipeline_->Iterate();
    std::string error;
    std::thread waits([&] { error = Error(); });
    while (pipeline_->LongestWait() < absl::Milliseconds(5)) absl::SleepFor(absl::Milliseconds(1));
    end();
    waits.join();
    EXPECT_EQ(pipeline_->LongestWait(), absl::ZeroDuration());
    return error;
  };
  EXPECT_TRUE(absl::StrContains(ended_by([] { Pipeline::InterruptAll(); }), "Ctrl-C"));
  EXPECT_EQ(ended_by([this] { iteration_->Cancel(absl::CancelledError("cancelled")); }),
            "cancelled");
  EXPECT_EQ(ended_by([this] { pipeline_->Fail("SIGKILL"); }), "SIGKILL");
  EXPECT_EQ(pipeline_->Iterate().status().message(), "SIGKILL");
}

TEST_F(PipelineTest, AProcessThatIsGoneIsExplained) {
  {
    const Writer writer = NewWriter();
  }
  std::string error;
  std::thread waits([&] { error = Error(); });
  while (pipeline_->LongestWait() < absl::Milliseconds(20)) absl::SleepFor(absl::Milliseconds(1));
  pipeline_->Fail("SIGSEGV");
  waits.join();
  EXPECT_EQ(error, "SIGSEGV");
}

TEST_F(PipelineTest, ProcessesTakeTurns) {
  AddProcess();
  iteration_ = *pipeline_->Iterate();
  {
    const Writer first_iteration = NewWriter();
  }
  const Writer first = NewWriter(0), second = NewWriter(1);
  for (int i = 0; i < 2; ++i) {
    first.SendElement(i, 1);
    second.SendElement(i, 2);
  }
  first.Say(kEnd, 0, 0);
  EXPECT_EQ(Next(), 1);
  EXPECT_EQ(Next(), 2);
  EXPECT_EQ(Next(), 1);
  EXPECT_EQ(Next(), 2);
  second.Say(kEnd, 0, 0);
  EXPECT_EQ(Next(), -1);
}

TEST_F(PipelineTest, DamagedMessagesAreErrors) {
  const Writer writer = NewWriter();
  for (const auto& [kind, slot, size] : std::vector<std::array<int64_t, 3>>{
           {kElement, -1, 8},
           {kElement, ElementSlots::kSlots, 8},
           {kElement, 0, -1},
           {kElement, 0, 1 << 20},
           {kError, 99, 1},
           {77, 0, 0},
       }) {
    writer.Say(kind, slot, size);
    EXPECT_TRUE(absl::StrContains(Error(), "Report this")) << kind << " " << slot << " " << size;
  }
  writer.SendElement(0, 1);
  std::vector<Tensor> kept;
  bool end = false;
  ASSERT_TRUE(iteration_->Next(&kept, &end).ok());
  writer.Say(kElement, 0, 8);
  EXPECT_TRUE(absl::StrContains(Error(), "expected one of 8 that is free"));
}

TEST_F(PipelineTest, NoneBeginAfterTheEnd) {
  pipeline_->Close();
  EXPECT_EQ(pipeline_->iterations(), 1);
  EXPECT_TRUE(absl::StrContains(pipeline_->Iterate().status().message(), "Keep the dataset"));
  iteration_.reset();
  EXPECT_EQ(pipeline_->iterations(), 0);
  Pipeline::Remove(number_);
  EXPECT_TRUE(absl::StrContains(Pipeline::Find(number_).status().message(), "Keep the dataset"));
}

}  // namespace
}  // namespace tf_tpu_ext

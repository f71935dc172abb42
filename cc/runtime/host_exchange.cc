#include "cc/runtime/host_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

std::vector<CollectiveParticipant> InOrderOfRank(std::vector<CollectiveParticipant> participants) {
  std::sort(participants.begin(), participants.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return participants;
}

std::string Description(const std::string& name, const CollectiveParticipant& participant) {
  return absl::StrCat(name, " of ", participant.elements, " elements of type ",
                      participant.element_type);
}

}  // namespace

HostExchange::HostExchange(const CollectiveKey& key, const std::string& name,
                           std::vector<CollectiveParticipant> here, CollectiveOperation operation,
                           const PodShape& shape)
    : shape_(shape),
      operation_(std::move(operation)),
      here_(InOrderOfRank(std::move(here))),
      what_(Description(name, here_.front())) {
  for (Rank rank : key.cores.numbers()) ranks_of_[shape.HostOf(key.cores[rank])].push_back(rank);
}

std::set<Host> HostExchange::others() const {
  std::set<Host> others;
  for (const auto& [host, ranks] : ranks_of_) {
    if (host != shape_.host) others.insert(host);
  }
  return others;
}

std::vector<HostExchange::Piece> HostExchange::Pieces(Host from, Host to) const {
  const bool for_every_rank = here_.front().send.size() > 1;
  std::vector<Piece> pieces;
  for (Rank sender : ranks_of_.at(from)) {
    if (!for_every_rank) {
      pieces.push_back({sender, 0});
      continue;
    }
    for (Rank receiver : ranks_of_.at(to)) pieces.push_back({sender, receiver.value()});
  }
  return pieces;
}

absl::StatusOr<HostLinks::Messages> HostExchange::MessagesOfThisHost() {
  HostLinks::Messages messages;
  const int64_t bytes = here_.front().send_bytes;
  if (operation_.combine != nullptr) {
    combined_ = HostMessage(what_, bytes);
    TF_RETURN_IF_ERROR(combined_.CheckMemory());
    std::vector<const void*> sent;
    for (const CollectiveParticipant& participant : here_) sent.push_back(participant.send[0]);
    TF_RETURN_IF_ERROR(operation_.combine(sent, combined_.data()));
    for (Host host : others()) messages[host] = combined_;
    return messages;
  }
  std::map<Rank, const CollectiveParticipant*> participant_of;
  for (const CollectiveParticipant& participant : here_) {
    participant_of[participant.rank] = &participant;
  }
  for (Host host : others()) {
    const std::vector<Piece> pieces = Pieces(shape_.host, host);
    HostMessage message(what_, bytes * static_cast<int64_t>(pieces.size()));
    TF_RETURN_IF_ERROR(message.CheckMemory());
    char* to = message.data();
    for (const Piece& piece : pieces) {
      if (bytes > 0) std::memcpy(to, participant_of.at(piece.from)->send[piece.buffer], bytes);
      to += bytes;
    }
    messages[host] = std::move(message);
  }
  return messages;
}

absl::Status HostExchange::Run(const HostLinks::Messages& received, const HostLinks& links) {
  const int64_t bytes = here_.front().send_bytes;
  for (const auto& [host, message] : received) {
    const int64_t pieces =
        operation_.combine != nullptr ? 1 : static_cast<int64_t>(Pieces(host, shape_.host).size());
    TF_RETURN_IF_ERROR(message.Check(what_, bytes * pieces, links.NameOf(host)));
  }
  return operation_.combine != nullptr ? RunCombined(received) : RunWhole(received);
}

absl::Status HostExchange::RunCombined(const HostLinks::Messages& received) const {
  std::vector<CollectiveParticipant> participants;
  for (const auto& [host, ranks] : ranks_of_) {
    const HostMessage& message = host == shape_.host ? combined_ : received.at(host);
    CollectiveParticipant part;
    part.rank = ranks.front();
    part.send = {message.data()};
    participants.push_back(std::move(part));
  }
  for (const CollectiveParticipant& participant : here_) {
    CollectiveParticipant receiver;
    receiver.rank = participant.rank;
    receiver.recv = participant.recv;
    participants.push_back(std::move(receiver));
  }
  return operation_.run(participants);
}

absl::Status HostExchange::RunWhole(const HostLinks::Messages& received) const {
  std::vector<CollectiveParticipant> participants;
  for (const CollectiveParticipant& participant : here_) {
    CollectiveParticipant copy = participant;
    copy.done = nullptr;
    participants.push_back(std::move(copy));
  }
  const int64_t bytes = here_.front().send_bytes;
  const size_t buffers = here_.front().send.size();
  for (const auto& [host, message] : received) {
    std::map<Rank, CollectiveParticipant> senders;
    const char* from = message.data();
    for (const Piece& piece : Pieces(host, shape_.host)) {
      CollectiveParticipant& sender = senders[piece.from];
      sender.rank = piece.from;
      sender.send.resize(buffers);
      sender.send[piece.buffer] = from;
      from += bytes;
    }
    for (auto& [rank, sender] : senders) participants.push_back(std::move(sender));
  }
  return operation_.run(InOrderOfRank(std::move(participants)));
}

void HostExchange::Finish(const absl::Status& status) {
  for (CollectiveParticipant& participant : here_) participant.done(status);
}

}  // namespace tf_tpu_ext

#include "cc/profile/serial_spans.h"

#include <numeric>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"

namespace tf_tpu_ext {

SerialSpans MakeSerial(std::vector<Span> spans) {
  SerialSpans serial;
  serial.spans = std::move(spans);
  std::vector<Span>& shown = serial.spans;
  serial.order.resize(shown.size());
  std::iota(serial.order.begin(), serial.order.end(), 0);
  // Of those that begin at the same time, the longest comes first.
  absl::c_sort(serial.order, [&](int a, int b) {
    return std::make_tuple(shown[a].begin, -shown[a].end, a) <
           std::make_tuple(shown[b].begin, -shown[b].end, b);
  });
  // Spans that have not ended, each inside the previous one.
  std::vector<int> open;
  for (int next : serial.order) {
    const Span& span = shown[next];
    while (!open.empty() && shown[open.back()].end <= span.begin) open.pop_back();
    while (!open.empty()) {
      Span& outer = shown[open.back()];
      if (outer.has_parts && outer.end >= span.end) break;
      outer.end = span.begin;
      open.pop_back();
    }
    open.push_back(next);
  }
  return serial;
}

}  // namespace tf_tpu_ext

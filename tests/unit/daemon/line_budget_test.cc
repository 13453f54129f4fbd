#include "daemon/core/line_budget.h"

#include <gtest/gtest.h>

namespace sticky::daemon {
namespace {

TEST(LineBudget, AFloodIsCutAndWhatWasLeftOutIsTold) {
  LineBudget budget;
  const std::int64_t now_ns = 3 * LineBudget::kWindowNs;
  for (std::uint32_t i = 0; i < LineBudget::kLinesMax; ++i) {
    EXPECT_TRUE(budget.Ask(now_ns).allowed);
  }
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(budget.Ask(now_ns + 1).allowed);

  const LineBudget::Verdict next = budget.Ask(now_ns + LineBudget::kWindowNs);

  EXPECT_TRUE(next.allowed);
  EXPECT_EQ(next.left_out, 7u);
  EXPECT_EQ(budget.Ask(now_ns + 2 * LineBudget::kWindowNs).left_out, 0u);
}

}  // namespace
}  // namespace sticky::daemon

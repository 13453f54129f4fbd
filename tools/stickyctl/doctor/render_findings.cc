#include "tools/stickyctl/doctor/render_findings.h"

#include <algorithm>
#include <sstream>

#include "base/text.h"

namespace sticky::stickyctl {
namespace {

constexpr std::size_t kColumns = 80;

// `text` in lines of at most kColumns; the first follows `head`, the others are indented alike.
std::string Paragraph(const std::string& head, const std::string& text) {
  std::string out = head;
  std::size_t column = head.size();
  bool first = true;
  std::istringstream words(text);
  for (std::string word; words >> word; first = false) {
    if (!first && column + 1 + word.size() > kColumns) {
      out += "\n" + std::string(head.size(), ' ');
      column = head.size();
    } else if (!first) {
      out += " ";
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + "\n";
}

std::string Padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string Counted(std::size_t count, const std::string& word) {
  return Format("%zu ", count) + word + (count == 1 ? "" : "s");
}

}  // namespace

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string out = Counted(Count(findings, Level::kProblem), "problem") + ", " +
                    Counted(Count(findings, Level::kWarning), "warning") + ", " +
                    Counted(Count(findings, Level::kNote), "note") + "\n";
  std::size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.what.size() + 3);
  for (const Level level : {Level::kProblem, Level::kWarning, Level::kNote}) {
    for (const Finding& finding : findings) {
      if (finding.level != level) continue;
      out += "\n" + Paragraph(Padded(Name(level), 9), finding.what + ": " + finding.found);
      if (!finding.remedy.empty()) out += Paragraph(Padded("  do:", 9), finding.remedy);
    }
  }
  out += "\n";
  for (const Finding& finding : findings) {
    if (finding.level != Level::kOk) continue;
    out += Paragraph(Padded(finding.what + ":", width), finding.found);
  }
  return out;
}

Json FindingsJson(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back(Json{{"level", Name(finding.level)},
                        {"what", finding.what},
                        {"found", finding.found},
                        {"do", finding.remedy.empty() ? Json(nullptr) : Json(finding.remedy)}});
  }
  return list;
}

}  // namespace sticky::stickyctl

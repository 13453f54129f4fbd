// The scheduler's job that this process is part of, for people who look at who uses what.
//
// Thread: any thread, while nobody changes the environment.

#ifndef STICKY_BASE_JOB_H_
#define STICKY_BASE_JOB_H_

#include <cstdlib>
#include <string>

namespace sticky {

inline constexpr std::size_t kJobBytesMax = 128;

// "slurm 1234.0", "pbs 77.server", ...; empty outside of jobs. As the environment says, so nothing
// to trust. The variables are those that each scheduler's manual names.
inline std::string JobOfThisProcess() {
  struct Scheduler {
    const char* name;
    const char* mark;  // set in this scheduler's jobs alone
    const char* job;
    const char* part;  // of a job: a step, a task of an array; may be null
  };
  static constexpr Scheduler kSchedulers[] = {
      {"slurm", "SLURM_JOB_ID", "SLURM_JOB_ID", "SLURM_STEP_ID"},
      {"pbs", "PBS_JOBID", "PBS_JOBID", nullptr},
      {"lsf", "LSB_JOBID", "LSB_JOBID", "LSB_JOBINDEX"},
      {"sge", "SGE_TASK_ID", "JOB_ID", "SGE_TASK_ID"},
      {"flux", "FLUX_JOB_ID", "FLUX_JOB_ID", nullptr},
  };
  for (const Scheduler& scheduler : kSchedulers) {
    const char* const job = std::getenv(scheduler.job);
    if (std::getenv(scheduler.mark) == nullptr || job == nullptr || *job == '\0') continue;
    std::string text = std::string(scheduler.name) + " " + job;
    const char* const part = scheduler.part != nullptr ? std::getenv(scheduler.part) : nullptr;
    if (part != nullptr && *part != '\0') text += std::string(".") + part;
    if (text.size() > kJobBytesMax) text.resize(kJobBytesMax);
    return text;
  }
  return {};
}

}  // namespace sticky

#endif  // STICKY_BASE_JOB_H_

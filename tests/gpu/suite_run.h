// Runs one suite for a short while and returns the lines that it wrote.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "calibrate/probe/suites/suite.h"
#include "tests/gpu/device.h"

namespace trainyard::probe::test {

// A flat JSON object as text by key, numbers and words alike; enough for what suites write.
using Fields = std::map<std::string, std::string>;

inline Fields fields_of(const std::string& line) {
  Fields fields;
  for (std::size_t at = line.find('"'); at != std::string::npos; at = line.find('"', at + 1)) {
    const std::size_t colon = line.find("\":", at);
    if (colon == std::string::npos) break;
    std::size_t end = line.find_first_of(",}", colon + 2);
    std::string value = line.substr(colon + 2, end - colon - 2);
    if (!value.empty() && value.front() == '"') {
      end = line.find('"', colon + 3);
      value = line.substr(colon + 3, end - colon - 3);
    }
    fields[line.substr(at + 1, colon - at - 1)] = value;
    at = end;
  }
  return fields;
}

inline std::vector<Fields> run_suite(void (*run)(Context&), double seconds,
                                     const std::vector<DeviceInfo>& devices = {the_device()}) {
  char name[] = "/tmp/trainyard-gpu-test-XXXXXX";
  const int file = mkstemp(name);
  if (file < 0) throw std::runtime_error("no temporary file");
  close(file);
  std::vector<Fields> lines;
  {
    SampleFile samples(name);
    const Budget budget(seconds);
    Progress progress(budget);
    Context context{samples, devices, progress, budget, true};
    run(context);
    std::ifstream written(name);
    for (std::string line; std::getline(written, line);)
      lines.push_back(fields_of(line));
  }
  std::remove(name);
  return lines;
}

}  // namespace trainyard::probe::test

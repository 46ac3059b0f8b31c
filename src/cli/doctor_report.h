// The findings of `doctor`, for the command and for a bundle. One thread.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "doctor/doctor.h"

namespace starlane::cli {

/// Of this machine, of `directories`, and of the site of --dir where there is one.
std::vector<doctor::Check> examine_site(const Program& program,
                                        std::vector<std::string> directories, bool try_mount);
std::string checks_text(const std::vector<doctor::Check>& checks);
nlohmann::json checks_json(const std::vector<doctor::Check>& checks);

}  // namespace starlane::cli

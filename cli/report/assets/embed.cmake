# cmake -DASSETS=<folder> -DSCRIPTS="a.js b.js" -DOUTPUT=<file.cpp> -P embed.cmake
# Writes page.html, report.css and the scripts as string constants. The scripts become one function, so
# that nothing of them is global but what they put on window.

# A C++ string literal of any length: a raw literal holds at most 64 KiB with some compilers.
function(literal result text)
  string(LENGTH "${text}" length)
  set(out "\"\"\n")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 8000 piece)
    string(APPEND out "R\"~asset~(${piece})~asset~\"\n")
    math(EXPR at "${at} + 8000")
  endwhile()
  set(${result} "${out}" PARENT_SCOPE)
endfunction()

# Base64 of a string of hexadecimal digits.
function(base64_of_hex result hex)
  set(digits "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(LENGTH "${hex}" length)
  set(out "")
  set(at 0)
  while(at LESS length)
    # Three hexadecimal digits are two of base64.
    string(SUBSTRING "${hex}000" ${at} 3 three)
    math(EXPR high "0x${three} >> 6")
    math(EXPR low "0x${three} & 63")
    string(SUBSTRING "${digits}" ${high} 1 first)
    string(SUBSTRING "${digits}" ${low} 1 second)
    string(APPEND out "${first}${second}")
    math(EXPR at "${at} + 3")
  endwhile()
  # 32 bytes are 43 digits and one of padding.
  string(SUBSTRING "${out}" 0 43 out)
  set(${result} "${out}=" PARENT_SCOPE)
endfunction()

separate_arguments(SCRIPTS)
set(script "\"use strict\";\n(() => {\n")
foreach(name ${SCRIPTS})
  file(READ "${ASSETS}/${name}" text)
  string(APPEND script "${text}")
endforeach()
string(APPEND script "})();\n")
string(SHA256 hash "${script}")
base64_of_hex(hash "${hash}")
file(READ "${ASSETS}/page.html" page)
file(READ "${ASSETS}/report.css" style)
literal(page "${page}")
literal(style "${style}")
literal(script "${script}")
file(WRITE "${OUTPUT}" "#include \"cli/report/assets.h\"

namespace trainyard::assets {
const std::string_view page =
${page};
const std::string_view style =
${style};
const std::string_view script =
${script};
const std::string_view script_hash = \"sha256-${hash}\";
}  // namespace trainyard::assets
")

# `cmake --install BUILD --prefix P` and `cpack` (a .deb): the program, what it reads (it looks for
# share/trainyard/configs beside its own folder), its documents, its manual page and completion for bash, zsh, fish.
include(GNUInstallDirs)

# The same place as seen from the program of the build tree.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share/trainyard)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/configs ${PROJECT_BINARY_DIR}/share/trainyard/configs SYMBOLIC)

# What the program prints about itself, made by running it.
set(printed ${PROJECT_BINARY_DIR}/printed)
file(MAKE_DIRECTORY ${printed})
set(printed_files)
function(trainyard_print file)
  add_custom_command(
    OUTPUT ${printed}/${file}
    COMMAND trainyard ${ARGN} > ${printed}/${file}
    DEPENDS trainyard
    VERBATIM)
  set(printed_files ${printed_files} ${printed}/${file} PARENT_SCOPE)
endfunction()
trainyard_print(trainyard.1 manual)
trainyard_print(trainyard.bash completion bash)
trainyard_print(_trainyard completion zsh)
trainyard_print(trainyard.fish completion fish)
add_custom_target(trainyard_printed ALL DEPENDS ${printed_files})

install(TARGETS trainyard)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/trainyard)
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${printed}/trainyard.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${printed}/trainyard.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        RENAME trainyard)
install(FILES ${printed}/_trainyard DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${printed}/trainyard.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME trainyard)
set(CPACK_PACKAGE_CONTACT "trainyard's developers <trainyard@users.noreply.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "predicts how a training job runs on many GPUs")
set(CPACK_PACKAGE_FILE_NAME trainyard_${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # of dpkg-dev
include(CPack)

# Tests of the command line, of the source tree's rules, and of what `cmake --install` leaves for others.
wirewise_tests(cli wirewise_cli)
add_dependencies(cli_tests wirewise)

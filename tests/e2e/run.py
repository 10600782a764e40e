"""Runs one class of end-to-end tests: run.py PROGRAM module.Class. Exit code 77 when all of it was skipped."""
import os
import pathlib
import sys
import unittest


def main():
    os.environ["WIREWISE"], name = sys.argv[1:3]
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    suite = unittest.defaultTestLoader.loadTestsFromName(name)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if not result.wasSuccessful() or suite.countTestCases() == 0:
        return 1
    return 77 if len(result.skipped) >= max(1, result.testsRun) else 0


if __name__ == "__main__":
    sys.exit(main())

#!/bin/sh
# Make .venv hold the package with one extra ("lab", "test", "site" or "browser"). Called by the Makefile before every target.
#
#   sh tools/setup.sh lab
#
# A stamp in .venv names what was installed: the Python, pyproject.toml and constraints.txt. Same stamp: nothing to do, and
# that takes a few hundredths of a second. The stamp is written last, so a set-up that failed is tried again; one that was
# killed half-way may have left half a package behind, so it starts over with an empty .venv.
# pip decides where packages come from (its own settings apply); PYTHON=python3.12 chooses the Python.
set -eu
trap 'exit 130' INT
trap 'exit 143' TERM

extra=$1
venv=.venv
venv_python=$venv/bin/python
busy=$venv/.kvcourse-busy
recent_enough='import sys; sys.exit(sys.version_info < (3, 11))'

say() { printf '%s\n' "$*" >&2; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        if ! command -v "$PYTHON" >/dev/null 2>&1; then
            say "PYTHON=$PYTHON is not a command here. Name one that is, such as PYTHON=python3.12."; exit 1
        fi
        if ! "$PYTHON" -c "$recent_enough" 2>/dev/null; then
            say "The course needs Python 3.11 or newer; PYTHON=$PYTHON is $("$PYTHON" --version 2>&1)."; exit 1
        fi
        printf '%s' "$PYTHON"; return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if command -v "$candidate" >/dev/null 2>&1 && "$candidate" -c "$recent_enough" 2>/dev/null; then
            printf '%s' "$candidate"; return
        fi
    done
    say "The course needs Python 3.11 or newer; found $(python3 --version 2>&1 || true)."
    say "Install one (Debian and Ubuntu: apt install python3.11 python3.11-venv), or name it: make lab PYTHON=/path/to/python3.11"
    exit 1
}

describe() { # the Python that an interpreter stands for: its version, and where its base installation is
    "$1" -c 'import sys; print(sys.version.split()[0], sys.implementation.name, sys.base_prefix)' 2>/dev/null
}

wanted_stamp() {
    printf '%s\n' "$(describe "$venv_python")"
    cksum pyproject.toml constraints.txt
    pwd # an editable install points to this very folder
}

venv_is_usable() {
    [ -x "$venv_python" ] && [ ! -e "$busy" ] && "$venv_python" -c "$recent_enough" 2>/dev/null || return 1
    # Another Python asked for by name, or the one this environment came from was upgraded: start over.
    [ -z "${PYTHON:-}" ] || [ "$(describe "$PYTHON")" = "$(describe "$venv_python")" ]
}

is_done() { # the test extra contains lab and site, and the browser extra contains that
    containing="test browser"
    [ "$extra" != browser ] || containing=browser
    for name in "$extra" $containing; do
        stamp=$venv/.kvcourse-$name
        [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$(wanted_stamp)" ] && return 0
    done
    return 1
}

make_venv() {
    python=$(find_python)
    # Debian ships Python without ensurepip, and `python3 -m venv` then fails half-way.
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        say "This Python ($python) cannot make virtual environments: its venv or ensurepip module is missing."
        say "Debian and Ubuntu: apt install python3-venv. Or name another Python: make lab PYTHON=/path/to/python3.11"
        exit 1
    fi
    say "Making $venv with $("$python" --version) ..."
    rm -rf "$venv"
    mkdir "$venv" && : >"$busy"
    "$python" -m venv "$venv"
}

may_install() { # root, on Debian and its like
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1
}

apt_install() {
    install="env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $*"
    $install >/dev/null 2>&1 || { apt-get update -qq >/dev/null 2>&1 && $install >/dev/null; }
}

want_bubblewrap() { # the walls around graded answers; on Linux the tests ask for them
    [ "$extra" = test ] && [ "$(uname -s)" = Linux ] && ! command -v bwrap >/dev/null 2>&1 || return 0
    if may_install; then
        say "Installing bubblewrap, in which answers are graded ..."
        apt_install bubblewrap && return 0
    fi
    say "bubblewrap is missing: answers are graded without a sandbox, and the tests of the grader will fail."
    say "Install it: apt install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora), pacman -S bubblewrap (Arch)."
}

want_chromium() { # what the tests of the pages look into; Playwright brings none of its own here
    [ "$extra" = browser ] && [ -z "${CHROMIUM:-}" ] || return 0
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$name" >/dev/null 2>&1 && return 0
    done
    if may_install; then
        say "Installing Chromium, in which the pages are tested ..."
        apt_install chromium fonts-dejavu-core && return 0
    fi
    say "Chromium is missing, and the tests of the pages need it."
    say "Install it: apt install chromium (Debian), dnf install chromium (Fedora), pacman -S chromium (Arch);"
    say "or name another one: make test-browser CHROMIUM=/path/to/chromium"
    exit 1
}

want_bubblewrap
want_chromium
venv_is_usable && is_done && exit 0
if ! venv_is_usable || ! "$venv_python" -m pip --version >/dev/null 2>&1; then make_venv; fi

say "Installing kvcourse[$extra] into $venv; the first time takes some minutes (PyTorch is large) ..."
: >"$busy"
[ -t 2 ] && quiet= || quiet=--quiet # a person sees pip's progress bars, a log does not
if ! "$venv_python" -m pip install $quiet --disable-pip-version-check -c constraints.txt -e ".[$extra]"; then
    rm -f "$busy" # pip failed by itself and rolled back: what was there before is whole
    say "pip could not install the course (its own message is above). Nothing is half-done: run the same command again."
    exit 1
fi
wanted_stamp >"$venv/.kvcourse-$extra"
rm -f "$busy"

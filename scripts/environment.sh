# Virtual environments for scripts/quickstart and scripts/test; sourced, with the repository as current directory.

# The newest Python that is new enough; PYTHON chooses another.
find_python() {
    local name
    for name in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    echo "Tube needs Python 3.11 or newer; found: $(python3 --version 2>&1 || true)" >&2
    return 1
}

# install_package NAME: a Debian package, when we may.
install_package() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "please install the package $1 (for example: sudo apt-get install $1)" >&2
        return 1
    fi
    echo "installing $1 …" >&2
    (apt-get install -y -qq "$1" || (apt-get update -qq && apt-get install -y -qq "$1")) >/dev/null
}

# make_environment DIRECTORY: a virtual environment there, unless there is a good one.
make_environment() {
    local python
    if [ -x "$1/bin/python" ] && "$1/bin/python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        install_package python3-venv
    fi
    echo "making the virtual environment $1 …" >&2
    "$python" -m venv --clear "$1"
}

# install_when_changed DIRECTORY PIP-ARGUMENTS…: pip install, unless nothing has changed since the last time.
install_when_changed() {
    local venv=$1 stamp
    shift
    stamp="$(printf '%s\n' "$*" "$PWD"; cat setup.cfg pyproject.toml; installed_sources "$@")"
    if [ "$(cat "$venv/tube-stamp" 2>/dev/null)" = "$stamp" ]; then
        return
    fi
    echo "installing into $venv …" >&2
    rm -rf build  # what an older build left would be installed too
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
    rm -rf build
    printf '%s\n' "$stamp" >"$venv/tube-stamp"
}

# What a plain installation copies; an editable one follows the sources by itself.
installed_sources() {
    case " $* " in
    *" -e "*) ;;
    *) find tube migrations -type f -not -name '*.pyc' -exec cksum {} + | sort ;;
    esac
}

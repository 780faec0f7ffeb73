#!/usr/bin/env bash
# Makes this checkout ready to work in: a virtual environment with zapdb[dev], Polars and DataFusion
# for tests of history files, a Java for Spark, a Chromium for the tests of examples/todo_app, a
# PgBouncer for those of poolers, and the oldest PostgreSQL for those of storage.
#
#   tools/setup.sh                 .venv: collation from the ICU that pyicu-wheels carries
#   tools/setup.sh --system-icu    .venv-system-icu: collation from the ICU of the operating system
#
# Run it as often as you like: it does what is missing, and prints nothing when nothing is.
# As root on Debian or Ubuntu it installs missing system packages; elsewhere one line names them.
# PYTHON=... chooses the interpreter of a new environment. Needs bash 3.2 (macOS) or later.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly java_min=17 # what Spark 4 asks for
readonly pyicu=pyicu==2.17
readonly postgresql_min=15 # POSTGRESQL_RELEASE_MIN of zapdb/limits.py
readonly postgresql=/usr/lib/postgresql/$postgresql_min/bin
readonly uv=uv==0.13.9
readonly readers="datafusion polars" # of Parquet, beside those that zapdb uses
# Time zone data between which offsets changed, for tests. Installed beside the packages: the one
# that zapdb uses stays that of constraints.txt.
readonly tzdata="2022.2 2022.3 2022.4 2022.5 2022.6 2022.7 2023.1 2023.2 2023.3 2023.4 2024.1 2024.2
2025.1"

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# --- system packages -----------------------------------------------------------------------------

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_updated=no
apt_update() {
    [ "$apt_updated" = no ] || return 0
    # Some unrelated source may be broken; if a needed one is, the installation says so.
    apt-get update -qq || true
    apt_updated=yes
}

apt_install() {
    apt_update
    say "installing $*"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# --- Python --------------------------------------------------------------------------------------

is_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        is_python "$PYTHON" || die "PYTHON=$PYTHON is not a Python of 3.11 or later"
        python=$PYTHON
        return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if is_python "$candidate"; then
            python=$candidate
            take_faster_python
            return
        fi
    done
    return 1
}

# A Python that was compiled without optimizations, as pyenv compiles it unless told otherwise, takes
# half as long again. Where the system has the same version, the two are timed.
take_faster_python() {
    local system=/usr/bin/python3
    [ "$(uname)" = Linux ] && [ "$(version_of "$python")" = "$(version_of "$system")" ] || return 0
    "$system" -c 'import ensurepip, venv' 2>/dev/null && has_python_headers "$system" || return 0
    if [ $(($(time_of "$system") * 10)) -lt $(($(time_of "$python") * 9)) ]; then
        say "taking $system, which is faster than $python (PYTHON=$python takes the other one)"
        python=$system
    fi
}

version_of() { "$1" -c 'import sys; print(*sys.version_info[:2])' 2>/dev/null; }

# Prints how many microseconds a Python takes for calls, contexts, objects and texts.
time_of() {
    "$1" - <<'PYTHON'
import contextlib, time


@contextlib.contextmanager
def context(number, *, of=None):
    yield number


class Pair:
    def __init__(self, first, second):
        self.first, self.second = first, second


def work():
    began = time.process_time()
    kept = {}
    for number in range(5_000):
        with context(number, of=kept) as there:
            kept[str(there)] = Pair(there, second=number)
    return time.process_time() - began


print(int(min(work() for _ in range(20)) * 1e6))
PYTHON
}

create_venv() {
    local package
    if ! find_python; then
        can_apt || die "no Python of 3.11 or later: install one, or name it in PYTHON"
        apt_install python3 python3-venv
        find_python || die "no Python of 3.11 or later: install one, or name it in PYTHON"
    fi
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then # Debian packs them apart
        package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        can_apt || die "$python lacks the venv module: install $package"
        apt_install "$package"
    fi
    say "creating $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
}

# What the installed packages depend on. The path is in it since an editable install points to it.
fingerprint() {
    "$venv/bin/python" - "$PWD" "$@" <<'PYTHON'
import hashlib, pathlib, sys

parts = [sys.version, *sys.argv[1:]]
files = [pathlib.Path(name) for name in ("pyproject.toml", "constraints.txt")]
files += [pathlib.Path("tools/native_build.py"), *sorted(pathlib.Path("native").glob("*.[ch]"))]
parts += [file.read_text() for file in files]
print(hashlib.sha256("\0".join(parts).encode()).hexdigest())
PYTHON
}

pip_install() { "$venv/bin/python" -m pip install --disable-pip-version-check -q "$@"; }

# uv is sooner done than pip. It does not read how pip is configured here, but for certificates.
has_uv=yes
has_fetched=no
uv_install() {
    local -a uv_pip=("$venv/bin/uv" pip install -q --system-certs --python "$venv/bin/python")
    [ "$has_uv" = yes ] || return
    [ -x "$venv/bin/uv" ] || pip_install --no-compile "$uv" || return
    # First from the cache alone. Where an index does not say how long its files last, as mirrors
    # tend not to, uv fetches and builds anew all that has no wheel, and keeps what it had: 1.5 GB of
    # pyspark each time.
    "${uv_pip[@]}" --offline "$@" 2>/dev/null && return
    has_fetched=yes
    UV_HTTP_TIMEOUT=180 "${uv_pip[@]}" "$@"
}

# Removes what uv has put aside for something newer: a build is fetched once to be read, once to be
# built. It does not wait for others that use the cache: the next set-up that fetches does it, too.
prune_cache() {
    [ "$has_fetched" = yes ] || return 0
    UV_LOCK_TIMEOUT=1 "$venv/bin/uv" cache prune -q 2>/dev/null || true
}

install_packages() {
    say "installing zapdb[dev] into $venv"
    # pyspark has no wheel, and compressing its archives again is most of the time of making one.
    uv_install -c constraints.txt --build-constraints constraints.txt \
        --config-settings-package pyspark:--build-option=--compression=stored -e '.[dev]' && return
    has_uv=no
    say "uv can't, so pip does it"
    # Not compiled: that takes a fifth of the time, and whatever is imported is compiled then.
    # In the environment too, since only there it holds for what builds a package: up to pip 25.2
    # under the first name, later under the second.
    PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
        pip_install --no-compile -c constraints.txt -e '.[dev]'
}

# They have no wheel for each system and Python, and take a Rust compiler half an hour.
install_readers() {
    say "installing $readers"
    # shellcheck disable=SC2086  # a list of words
    uv_install -c constraints.txt --no-build $readers ||
        pip_install --no-compile -c constraints.txt --only-binary :all: $readers ||
        say "without $readers, some tests of history files are skipped"
}

# The accelerator lies in the checkout, where it can be deleted, or be older than its sources.
is_native_stale() {
    local suffix module
    suffix=$("$venv/bin/python" - <<'PYTHON'
import sysconfig

if not sysconfig.get_config_var("Py_GIL_DISABLED"):  # for which it isn't made
    print(sysconfig.get_config_var("EXT_SUFFIX"))
PYTHON
    )
    module=zapdb/_native$suffix
    [ -n "$suffix" ] || return 1
    [ ! -e "$module" ] || [ -n "$(find native -name '*.[ch]' -newer "$module")" ]
}

can_compile() { [ "${ZAPDB_NATIVE:-}" = yes ] || command -v "${CC:-cc}" >/dev/null; }

build_native() {
    say "compiling the accelerator"
    "$venv/bin/python" -m tools.native_build >/dev/null 2>&1 && return
    say "it can't be: python -m tools.native_build says why"
    [ "${ZAPDB_NATIVE:-}" != yes ] # without that, the codec is the pure one
}

install_tzdata() {
    local version target
    for version in $tzdata; do
        target=$venv/tzdata/$version
        [ ! -d "$target" ] || continue
        say "installing tzdata $version for tests"
        rm -rf "$target.part"
        uv_install --no-deps --target "$target.part" "tzdata==$version" ||
            pip_install --no-deps --target "$target.part" "tzdata==$version"
        mv "$target.part" "$target" # at once, so that what is there is whole
    done
}

# --- Java ----------------------------------------------------------------------------------------

# Prints the home of the Java that a command starts, if Spark takes its version.
java_home_of() {
    # Java 8 calls itself 1.8, which is too low either way.
    "$1" -XshowSettings:properties -version 2>&1 | awk -F ' = ' -v min="$java_min" '
        / java\.home = / {home = $2}
        / java\.specification\.version = / {version = $2}
        END {if (version + 0 < min) exit 1; print home}'
}

# Not only the first java on the path: JAVA_HOME may be stale and the path may lead to an old one.
find_java() {
    local candidate
    for candidate in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java /usr/lib/jvm/*/bin/java \
        /opt/homebrew/opt/openjdk*/bin/java \
        /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java; do
        if java_home=$(java_home_of "$candidate"); then
            return
        fi
    done
    return 1
}

install_java() {
    local package=openjdk-$java_min-jre-headless # no compiler is needed
    can_apt || die "no Java of $java_min or later: install one (a JRE will do), or set JAVA_HOME"
    apt_update
    # Later Debians have another one; the default may be older than 17 where 17 exists.
    apt-get install -qq --simulate "$package" >/dev/null 2>&1 || package=default-jre-headless
    apt_install "$package"
    find_java || die "$package is not a Java of $java_min or later: install one, or set JAVA_HOME"
}

# --- a browser ----------------------------------------------------------------------------------

find_chromium() {
    local candidate
    for candidate in ${CHROMIUM:+"$CHROMIUM"} chromium chromium-browser google-chrome \
        "/Applications/Chromium.app/Contents/MacOS/Chromium" \
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"; do
        if chromium=$(command -v "$candidate"); then
            return
        fi
    done
    return 1
}

# All but the tests of examples/todo_app does without, so a missing one ends nothing.
# Tests of poolers are skipped without it.
install_pgbouncer() {
    PATH="$PATH:/usr/sbin" command -v pgbouncer >/dev/null && return
    if can_apt && { apt_update; apt-get install -qq --simulate pgbouncer >/dev/null 2>&1; }; then
        apt_install pgbouncer
    else
        say "without pgbouncer, the tests of poolers are skipped"
    fi
}

install_chromium() {
    if can_apt; then
        apt_update
        # Ubuntu has it as a snap only.
        if apt-get install -qq --simulate chromium >/dev/null 2>&1; then
            apt_install chromium
            find_chromium && return
        fi
    fi
    say "no Chromium for the tests of examples/todo_app: install one, or name it in CHROMIUM"
    return 1
}

# --- the oldest PostgreSQL -----------------------------------------------------------------------

# Tests of storage run on it, too; without it they say that they are skipped.
install_postgresql() {
    if can_apt; then
        apt_update
        # Each Debian and Ubuntu has one release.
        if apt-get install -qq --simulate "postgresql-$postgresql_min" >/dev/null 2>&1; then
            apt_install "postgresql-$postgresql_min" && return
        fi
    fi
    say "no PostgreSQL $postgresql_min for the tests of storage: install it in $postgresql"
    return 1
}

# --- the system's ICU ----------------------------------------------------------------------------

has_python_headers() {
    "$1" - <<'PYTHON'
import pathlib, sys, sysconfig

sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())
PYTHON
}

require_icu_headers() {
    local missing=""
    command -v g++ >/dev/null || missing="$missing g++"
    command -v pkg-config >/dev/null || missing="$missing pkg-config"
    pkg-config --exists icu-i18n 2>/dev/null || missing="$missing libicu-dev"
    has_python_headers "$venv/bin/python" || missing="$missing python3-dev"
    [ -n "$missing" ] || return 0
    can_apt || die "to compile PyICU, install$missing (or what your system calls them)"
    # shellcheck disable=SC2086  # a list of words
    apt_install $missing
}

replace_icu() {
    say "compiling $pyicu against ICU $icu_version"
    # Both packages own the module icu, so one must go before the other comes. A wheel in pip's cache
    # may be linked to an ICU that is gone.
    "$venv/bin/python" -m pip uninstall -q -y pyicu-wheels
    pip_install --force-reinstall --no-deps --no-cache-dir --no-binary pyicu "$pyicu"
    "$venv/bin/python" -c 'import icu, sys; sys.exit(icu.ICU_VERSION != sys.argv[1])' "$icu_version" ||
        die "PyICU was compiled, but does not use ICU $icu_version"
}

# --- all of it -----------------------------------------------------------------------------------

venv=.venv
icu_version=wheel
case "${1:-}" in
"") ;;
--system-icu) venv=.venv-system-icu ;;
*) die "usage: tools/setup.sh [--system-icu]" ;;
esac

is_python "$venv/bin/python" && "$venv/bin/python" -c 'import pip' 2>/dev/null || create_venv

if [ "$venv" = .venv-system-icu ]; then
    require_icu_headers
    icu_version=$(pkg-config --modversion icu-i18n)
fi

wanted=$(fingerprint "$pyicu" "$icu_version" "$tzdata" "$readers")
if [ "$wanted" != "$(cat "$venv/installed" 2>/dev/null)" ]; then
    install_packages
    install_readers
    [ "$icu_version" = wheel ] || replace_icu
    install_tzdata
    prune_cache
    echo "$wanted" >"$venv/installed" # last, so that an interrupted installation is repeated
fi

if [ "${ZAPDB_NATIVE:-}" != no ] && is_native_stale && can_compile; then
    build_native
fi

find_java || install_java
echo "$java_home" >"$venv/java_home" # the Makefile exports it

[ -x "$postgresql/postgres" ] || install_postgresql || true

chromium=""
find_chromium || install_chromium || true
echo "$chromium" >"$venv/chromium" # tests/examples starts it

install_pgbouncer

# Shared by scripts/demo and scripts/test: install what is missing, say so first, and start no service.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 3
python=.venv/bin/python
policy=/usr/sbin/policy-rc.d
cluster=/etc/postgresql-common/createcluster.conf
export PIP_DISABLE_PIP_VERSION_CHECK=1 DEBIAN_FRONTEND=noninteractive
# Each module is compiled when it is first loaded, and not again by the next process that loads it.
unset PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "$*"; }
fail() { say "$*" >&2; exit 3; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo DEBIAN_FRONTEND=noninteractive "$@"; fi; }

# find_python_with MODULES: the first python3 that is new enough and has them.
find_python_with() {
    local candidate
    for candidate in python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11; do
        "$candidate" -c "import sys, $1; sys.exit(sys.version_info < (3, 11))" 2>/dev/null &&
            { command -v "$candidate"; return; }
    done
    return 1
}
find_python() { find_python_with "ensurepip, venv"; }
find_python_without_venv() { find_python_with argparse; }

has_command() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }
has_postgresql() { command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; }
is_installed() { [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
has_zookeeper() { has_command java && [ -e /usr/share/java/zookeeper.jar ] && [ -e /usr/share/java/slf4j-simple.jar ]; }

# missing_packages PACKAGE...: the Debian packages that will be installed for them.
missing_packages() {
    local package
    for package in $(lacking "$@"); do
        is_installed "$package" || say "$package"
    done
}

# lacking PACKAGE...: those of them that this machine has no equivalent of, as Debian calls them.
lacking() {
    local package
    for package in "$@"; do
        case $package in
            python3) find_python >/dev/null || say python3 python3-venv ;;
            git) has_command git || say git ;;
            nginx) has_command nginx || say nginx ;;
            redis-server) has_command redis-server || say redis-server ;;
            postgresql) has_postgresql || say postgresql ;;
            zookeeper) has_zookeeper || say libzookeeper-java default-jre-headless ;;
            mariadb) has_command mariadbd && has_command my_print_defaults || say mariadb-server-core mariadb-client-core ;;
            gcc) has_command gcc && [ -e /usr/include/time.h ] || say gcc libc6-dev ;;
            pgbouncer) has_command pgbouncer || say pgbouncer ;;
            chromium) has_command chromium || say chromium ;;
            prometheus) has_command prometheus || say prometheus ;;
            curator) [ -e /usr/share/java/curator-recipes.jar ] && has_command javac || say libcurator-recipes-java default-jdk-headless ;;
            maven) has_command mvn && has_command javac || say maven default-jdk-headless ;;
        esac
    done
}

size_of() {
    case $1 in
        python3) say "about 30 MB" ;;
        python3-venv) say "about 6 MB" ;;
        git) say "about 45 MB" ;;
        nginx) say "about 2 MB" ;;
        redis-server) say "about 6 MB" ;;
        postgresql) say "about 260 MB" ;;
        # The core packages have the programs, and no service.
        mariadb-server-core) say "about 50 MB" ;;
        mariadb-client-core) say "about 15 MB" ;;
        # The package zookeeper would bring a desktop's Java, and zookeeperd a service.
        libzookeeper-java) say "about 45 MB" ;;
        default-jre-headless) say "about 200 MB" ;;
        gcc) say "about 90 MB" ;;
        libc6-dev) say "about 20 MB" ;;
        pgbouncer) say "about 1 MB" ;;
        chromium) say "about 400 MB" ;;
        prometheus) say "about 160 MB" ;;
        libcurator-recipes-java) say "about 5 MB" ;;
        maven) say "about 20 MB" ;;
        default-jdk-headless) say "about 80 MB beside the runtime" ;;
    esac
}

# setup PURPOSE SIZE "PACKAGES" PIP-ARGUMENTS...
setup() {
    local purpose=$1 size=$2 wanted missing ready=""
    # shellcheck disable=SC2086  # a list of words
    missing=$(missing_packages $3 | xargs)
    shift 3
    wanted=$(cat pyproject.toml constraints.txt | sha256sum)
    # The tests need what each of the others needs.
    case "$wanted" in "$(stamp_of "$purpose")" | "$(stamp_of test)") ready=yes ;; esac
    if [ -n "$missing" ] || [ -z "$ready" ]; then
        say "This will be installed first:"
        # shellcheck disable=SC2086
        announce $missing
        if [ -z "$ready" ]; then
            if compgen -G '.venv/ready-for-*' >/dev/null; then size="what has changed since the last time"; fi
            say "  - Python packages, into .venv in this directory ($size)"
        fi
        say "Nothing else outside this directory is changed."
        say
        # shellcheck disable=SC2086
        if [ -n "$missing" ]; then install_packages $missing; fi
        if [ -z "$ready" ]; then
            install_python_packages "$@"
            say "$wanted" >".venv/ready-for-$purpose"
        fi
        say
    fi
}

stamp_of() { cat ".venv/ready-for-$1" 2>/dev/null; }

announce() {
    local package
    for package in "$@"; do say "  - the Debian package $package ($(size_of "$package")); no service is started"; done
}

# A machine without any Python: what else is needed can be told when there is one.
install_python() {
    local missing
    missing=$(missing_packages python3 | xargs)
    say "Python is missing, and is installed to see what else is needed:"
    # shellcheck disable=SC2086
    announce $missing
    say
    # shellcheck disable=SC2086
    install_packages $missing
}

install_packages() {
    has_command apt-get || fail "This is not Debian. Please install these yourself, then run this again: $*"
    [ "$(id -u)" = 0 ] || has_command sudo || fail "Please run this as root, or install these first: $*"
    say "Asking Debian for $* …"
    as_root apt-get update -qq || fail "Debian's package lists can't be fetched. Is there a network?"
    as_root apt-get install --simulate --no-install-recommends "$@" >/dev/null ||
        fail "Debian does not have all of: $*"
    as_root apt-get install --assume-no --no-install-recommends "$@" 2>/dev/null |
        grep -E '^(Need to get|After this operation)' | sed 's/^/  /'
    trap restore_services EXIT
    forbid_services
    if [[ " $* " == *" postgresql "* ]]; then
        apt_install postgresql-common
        forbid_cluster
    fi
    apt_install "$@"
    keep_from_booting "$@"
    restore_services
    trap - EXIT
}

apt_install() {
    as_root apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "$@" >var/apt.log 2>&1 ||
        { tail -n 5 var/apt.log >&2; fail "Debian could not install $*; the rest of what it said is in var/apt.log"; }
}

# Debian starts a service as soon as it is installed, unless this file forbids it.
forbid_services() {
    mkdir -p var
    if [ -e "$policy" ] && [ ! -e "$policy.before-distlock" ]; then
        as_root mv "$policy" "$policy.before-distlock"
    fi
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
}

# PostgreSQL would also make, and run, a database cluster of its own.
forbid_cluster() {
    as_root cp -p "$cluster" "$cluster.before-distlock"
    echo "create_main_cluster = false" | as_root tee -a "$cluster" >/dev/null
}

restore_services() {
    as_root rm -f "$policy"
    if [ -e "$policy.before-distlock" ]; then as_root mv "$policy.before-distlock" "$policy"; fi
    if [ -e "$cluster.before-distlock" ]; then as_root mv "$cluster.before-distlock" "$cluster"; fi
}

# Not started now, and not at the next boot either.
keep_from_booting() {
    local package
    has_command systemctl || return 0
    for package in "$@"; do
        case $package in
            nginx | redis-server | postgresql | pgbouncer | prometheus) as_root systemctl disable --quiet "$package" 2>/dev/null || true ;;
        esac
    done
}

install_python_packages() {
    local interpreter
    interpreter=$(find_python) || fail "Python 3.11 or newer is needed, with venv. Debian 12 and newer have it."
    say "Installing Python packages into .venv …"
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        "$interpreter" -m venv --clear .venv || fail "The virtual environment .venv could not be made."
    fi
    # --group came with pip 25.1. No cache: it would lie outside of this directory. Compat: this directory stands in
    # sys.path; a finder, the default, costs each Python as much again as it takes to start.
    mkdir -p var
    { "$python" -m pip install --no-cache-dir --upgrade 'pip>=25.1' &&
        "$python" -m pip install --no-cache-dir --no-compile -c constraints.txt -e '.[all]' -C editable_mode=compat "$@"; } >var/pip.log 2>&1 ||
        { tail -n 5 var/pip.log >&2; fail "The Python packages could not be installed; pip's words are in var/pip.log"; }
}

#!/bin/sh
# NOT Apptainer: the three calls that Snakemake makes of it, answered with bubblewrap on an unpacked image, for tests.
# The image is entered as it is (its / becomes /), the host's environment is kept but for PATH and HOME, as Apptainer does.
set -eu
[ "$1" != --version ] || { echo "apptainer version 1.3.0"; exit 0; }
while [ "$1" != exec ]; do
    case $1 in -*) shift ;; *) echo "stand-in for apptainer: no $1 here" >&2; exit 255 ;; esac
done
shift
binds=""
while :; do
    case $1 in
        --home) home=$2; shift 2 ;;
        --bind) binds="$binds --bind $2 $2"; shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
image=$1
shift
# shellcheck disable=SC2086 # a list of words
exec bwrap --bind "$image" / --dev-bind /dev /dev --proc /proc --bind /tmp /tmp $binds --bind "$home" "$home" --chdir "$home" \
    --setenv HOME "$home" --setenv PATH /usr/local/bin:/usr/bin:/bin --setenv APPTAINER_CONTAINER "$image" -- "$@"

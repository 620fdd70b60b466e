#!/usr/bin/env bash
# Writes the summary of a run as a comment on the pull request NUMBER, in place of the one before.
# GitHub sets GITHUB_REPOSITORY; action.yml sets the other variables.
set -euo pipefail

marker="<!-- tkdebug: $NAME -->"
comments="repos/$GITHUB_REPOSITORY/issues/$NUMBER/comments"
{
    printf '%s\n' "$marker"
    cat "$FOLDER/summary.md"
    printf '\n[The page of the run and its session](%s) (an archive)\n' "$PAGE"
} >"$RUNNER_TEMP/comment.md"

earlier=$(MARKER=$marker gh api --paginate "$comments" --jq \
    '.[] | select(.user.type == "Bot" and (.body | startswith(env.MARKER))) | .id')
earlier=${earlier%%$'\n'*}
if [ -n "$earlier" ]; then
    gh api --silent --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$earlier" \
        --field "body=@$RUNNER_TEMP/comment.md"
else
    gh api --silent --method POST "$comments" --field "body=@$RUNNER_TEMP/comment.md"
fi

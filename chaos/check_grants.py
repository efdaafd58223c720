"""Invariants of claims: tokens, leases and the fence."""

import bisect
import collections
import itertools

ENDS = ('finish', 'finish_many', 'release', 'fail', 'again')


def tokens_are_unique(c):
    count = collections.Counter((key, token) for key, token, event in c.grants)
    c.expect('a token is granted once', [what for what, n in count.items() if n > 1])


def tokens_grow(c):
    """Received before the next was sent: across crashes, promotion and restore."""
    wrong = []
    for key, grants in c.grants_by_key().items():
        by_end = sorted(grants, key=lambda grant: grant[1].received)
        greatest, seen = 0, 0
        for token, event in sorted(grants, key=lambda grant: grant[1].sent):
            while by_end[seen][1].received < event.sent:
                greatest = max(greatest, by_end[seen][0])
                seen += 1
            if token <= greatest:
                wrong.append('%s: %d after %d, %s' % (key, token, greatest, event))
    c.expect('a later grant has a greater token', wrong)


def ends_of_claims(c):
    """When the end of a claim was sent at the earliest, by key and token."""
    ended = collections.defaultdict(lambda: float('inf'))
    for event in c.journals.of(*ENDS):
        for key, token in event.what.get('tokens') or [[event.what['key'], event.what['token']]]:
            ended[key, token] = min(ended[key, token], event.sent)
    # A request that is handed to a person is out of its holder's hands.
    for event in c.journals.of('call', 'call_finish'):
        if event.result is None or event.result == 'review' or event.result[0] == 'review':
            pair = event.what['key'], event.what['token']
            ended[pair] = min(ended[pair], event.sent)
    return ended


def leases_are_respected(c):
    """A claim that is known to be committed is not given to anybody else."""
    ended = ends_of_claims(c)
    sent = {(key, token): event.sent for key, token, event in c.grants}
    grants = {key: sorted(found, key=lambda grant: grant[1].sent) for key, found in c.grants_by_key().items()}
    times = {key: [event.sent for _, event in found] for key, found in grants.items()}
    wrong = []
    for held in c.journals.held:
        key, token = held['key'], held['token']
        until = sent[key, token] + held['lease']
        first, last = (bisect.bisect_right(times[key], time) for time in (held['t'], until))
        for other, event in grants[key][first:last]:
            if other > token and event.received < min(until, ended[key, token]):
                wrong.append('%s: %d until %.3f, %s' % (key, token, until, event))
    c.expect('nobody takes over a live lease', wrong)


def fences(c):
    """For each key, since when which token is the smallest that may write: two lists."""
    committed = {(effect[0], effect[2]) for effect in c.effects}
    lasting = {(held['key'], held['token']): held['t'] for held in c.journals.held}
    found = {}
    for key, grants in c.grants_by_key().items():
        raised = []
        for token, grant in grants:
            # Grants of transactions that were rolled back fence nobody; one
            # that was not had the row from the moment of its answer.
            since = lasting.get((key, token))
            if since is None and (key, token) in committed:
                since = grant.received
            if since is not None:
                raised.append((since, token))
        raised.sort()
        found[key] = ([since for since, _ in raised], list(itertools.accumulate((token for _, token in raised), max)))
    return found


def fence_holds(c):
    """After a larger token was acknowledged the smaller one does nothing."""
    fence = fences(c)
    wrong = []
    for event in c.journals.of('finish', 'extend', 'release', 'fail', 'checkpoint', 'call'):
        if event.outcome != 'ok' or event.result is False:
            continue
        key, token = event.what['key'], event.what['token']
        times, tokens = fence[key]
        known = bisect.bisect_left(times, event.sent)
        if known > 0 and tokens[known - 1] > token:
            wrong.append('%s: %d after %d, %s' % (key, token, tokens[known - 1], event))
    c.expect('no write under a token after a larger one', wrong)


INVARIANTS = (tokens_are_unique, tokens_grow, leases_are_respected, fence_holds)

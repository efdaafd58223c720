"""Invariants of claims: tokens, leases and the fence."""

import collections

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
    grants = c.grants_by_key()
    wrong = []
    for held in c.journals.held:
        key, token = held['key'], held['token']
        until = sent[key, token] + held['lease']
        for other, event in grants[key]:
            if (other > token and event.sent > held['t'] and event.received < until
                    and event.received < ended[key, token]):
                wrong.append('%s: %d until %.3f, %s' % (key, token, until, event))
    c.expect('nobody takes over a live lease', wrong)


def fence_holds(c):
    """After a larger token was acknowledged the smaller one does nothing."""
    grants = c.grants_by_key()
    committed = {(effect[0], effect[2]) for effect in c.effects}
    lasting = {(held['key'], held['token']): held['t'] for held in c.journals.held}
    wrong = []
    for event in c.journals.of('finish', 'extend', 'release', 'fail', 'checkpoint', 'call'):
        if event.outcome != 'ok' or event.result is False:
            continue
        key, token = event.what['key'], event.what['token']
        for other, grant in grants[key]:
            # Grants of transactions that were rolled back fence nobody; one
            # that was not had the row from the moment of its answer.
            since = lasting.get((key, other))
            if since is None and (key, other) in committed:
                since = grant.received
            if other > token and since is not None and since < event.sent:
                wrong.append('%s: %d after %d, %s' % (key, token, other, event))
    c.expect('no write under a token after a larger one', wrong)


INVARIANTS = (tokens_are_unique, tokens_grow, leases_are_respected, fence_holds)

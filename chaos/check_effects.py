"""Invariants of what was done: effects, replays, steps, messages, transitions."""

import collections
import json

LEGAL_STEPS = {('created', 'paid'), ('paid', 'shipped'), ('paid', 'cancelled'),
               ('cancelled', 'created'), ('shipped', 'created')}


def canonical(text):
    return json.dumps(json.loads(text), sort_keys=True)


def one_effect_for_a_life(c):
    count = collections.Counter(effect[:2] for effect in c.effects)
    c.expect('a life of a key has one effect', [what for what, n in count.items() if n > 1])


def lives_do_not_overlap(c):
    """The next life begins when the one before has expired, not earlier."""
    wrong = []
    for one, next_one in zip(c.effects, c.effects[1:]):
        if one[0] == next_one[0] and one[6] > next_one[5]:
            wrong.append('%s: until %s, again at %s' % (one[0], one[6], next_one[5]))
    c.expect('a finished key is not run again inside its ttl', wrong)


def acknowledged_is_there(c):
    have = collections.defaultdict(set)
    for effect in c.effects:
        have[effect[0], effect[2]].add(canonical(effect[4]))
    wrong = []
    for event in c.journals.of('finish'):
        if event.outcome == 'ok' and event.result is True and event.what['flushed']:
            if canonical(event.what['answer']) not in have[event.what['key'], event.what['token']]:
                wrong.append('%s: %s' % (event.what['key'], event))
    c.expect('an acknowledged finish survives', wrong)


def refused_is_not_there(c):
    have = {(effect[0], effect[2]) for effect in c.effects}
    wrong = []
    for event in c.journals.of('finish', 'finish_many'):
        pairs = event.what.get('tokens') or [[event.what['key'], event.what['token']]]
        if event.outcome == 'failed' and event.sqlstate in ('ID001', 'ID002'):
            wrong.extend(str(event) for pair in pairs if tuple(pair) in have)
    c.expect('a refused finish leaves no effect', wrong)


def replays_are_true(c):
    """Every replay tells what the finisher of that life has stored."""
    stored = {(effect[0], effect[7], effect[4]) for effect in c.effects}
    loose = set()       # finished with synchronous_commit = off: may be lost
    for event in c.journals.of('finish', 'finish_many'):
        if not event.what['flushed']:
            loose.update(canonical(answer) for answer in event.what.get('answers') or [event.what['answer']])
    wrong = []
    for key, body, expires, event in c.all_replays():
        if (key, expires, body) in stored:
            continue
        content = json.loads(body)
        if json.dumps(content, sort_keys=True) in loose or 'run' in content:
            continue
        wrong.append('%s: %s' % (key, event))
    c.expect('a replay is the response of its finisher', wrong)


def log_agrees_with_effects(c):
    c.expect('a finished request has its effect', c.sql('''
        SELECT request_id, life, token FROM transaction_log l
         WHERE status IN ('completed', 'failed') AND retry_at IS NULL AND scope <> 'batch'
           AND NOT EXISTS (SELECT FROM effect e
               WHERE e.request_id = l.request_id AND e.life = l.life AND e.token = l.token
                 AND e.body = coalesce(l.response_body, l.error)::text)'''))
    c.expect('an effect has its finished request', c.sql('''
        SELECT e.request_id, e.life, e.token, l.status FROM effect e
          LEFT JOIN transaction_log l ON l.request_id = e.request_id AND l.life = e.life
         WHERE e.expires_at > clock_timestamp() AND l.token IS DISTINCT FROM e.token'''))


def steps_are_done_once(c):
    c.expect('a step of a life is done once', c.sql(
        'SELECT request_id, life, step FROM step_effect GROUP BY 1, 2, 3 HAVING count(*) > 1'))
    c.expect('a finished batch has done all its steps', c.sql('''
        SELECT l.request_id, l.life, count(s.step) FROM transaction_log l LEFT JOIN step_effect s USING (request_id, life)
         WHERE l.scope = 'batch' AND l.status = 'completed' GROUP BY 1, 2 HAVING count(s.step) <> 2'''))


def messages_are_handled_once(c):
    c.expect('a message is handled once', c.sql(
        'SELECT message_id FROM message_effect GROUP BY 1 HAVING count(*) > 1'))
    c.expect('a message that is noted was handled', c.sql(
        'SELECT message_id FROM idempotency_inbox i WHERE NOT EXISTS'
        ' (SELECT FROM message_effect e WHERE e.message_id = i.message_id)'))


def transitions_are_legal(c):
    changes = c.sql('SELECT id, old_state, new_state, old_version, new_version FROM order_change'
                    ' ORDER BY id, new_version')
    c.expect('only declared transitions', [change for change in changes if (change[1], change[2]) not in LEGAL_STEPS])
    wrong, last = [], {}
    for change in changes:
        if change[3] != last.get(change[0], 1) or change[4] != change[3] + 1:
            wrong.append(change)
        last[change[0]] = change[4]
    c.expect('versions advance by one', wrong)


INVARIANTS = (one_effect_for_a_life, lives_do_not_overlap, acknowledged_is_there, refused_is_not_there,
              replays_are_true, log_agrees_with_effects, steps_are_done_once, messages_are_handled_once,
              transitions_are_legal)

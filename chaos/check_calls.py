"""Invariants of outside calls: the provider's ledger against journals and database."""

import collections
import json
import os

import calls
import journals

RESULTS = ('succeeded', 'failed')


def read_ledger(directory):
    path = os.path.join(directory, 'ledger')
    return list(journals.lines_of(path)) if os.path.exists(path) else []


def decided(c):
    """What the provider has decided of a call: {call_id: (status, receipt)}."""
    return {line['call_id']: (line['what'], line['receipt']) for line in c.ledger if line['what'] in RESULTS}


def one_charge_for_a_life(c):
    count = collections.Counter((line['key'], line['life']) for line in c.ledger if line['what'] == 'succeeded')
    c.expect('a life of a key is charged once', [what for what, n in count.items() if n > 1])


def charges_are_fenced(c):
    largest, wrong = {}, []
    granted = {(key, token) for key, token, event in c.grants}
    for line in c.ledger:
        greatest = largest.get(line['key'], 0)
        if line['what'] in RESULTS and line['token'] < greatest:
            wrong.append('%s after %d' % (line, greatest))
        largest[line['key']] = max(greatest, line['token'])
    c.expect('no charge is accepted under a token after a larger one', wrong)
    c.expect('a token that a provider saw was granted',
             [line for line in c.ledger if (line['key'], line['token']) not in granted])


def sent_again_only_where_it_is_safe(c):
    """Without a key, once for each time that somebody said it did not arrive."""
    sent, undone = collections.Counter(), collections.Counter()
    for event in c.journals.of('call'):
        if event.outcome == 'ok' and event.result[0] == 'send' and event.what['provider'] != 'keyed':
            sent[event.result[1]] += 1
    words = ([event.what for event in c.journals.of('call_finish') if event.outcome != 'failed']
             + c.journals.settling)
    undone.update(line['call_id'] for line in words if line['word'] in ('not_sent', 'not_found'))
    c.expect('a call is sent again only where that is safe',
             ['%s: sent %d times, undone %d times' % (call_id, n, undone[call_id])
              for call_id, n in sent.items() if n > 1 + undone[call_id]])


def answers_are_the_providers(c):
    results, wrong = decided(c), []
    for event in c.journals.of('call'):
        if event.outcome == 'ok' and event.result[0] == 'done':
            call_id, status, body = event.result[1], event.result[3], json.loads(event.result[4])
            if results.get(call_id) != (status, body.get('receipt') if isinstance(body, dict) else body):
                wrong.append('%s, not %s' % (event, results.get(call_id)))
    c.expect('an answer is what the provider has decided', wrong)
    c.expect('the first definite answer stays',
             [str(event) for event in c.journals.of('lie') if event.outcome == 'ok']
             + [str(event) for event in c.journals.of('call_finish')
                if event.sqlstate == 'ID003' and event.what['word'] in RESULTS])


def effects_are_charged(c):
    by_life = {(line['key'], line['life']): (line['what'], line['receipt'])
               for line in c.ledger if line['what'] in RESULTS}
    wrong = []
    for key, life, token, status, body, *_ in c.effects:
        if key.startswith('pay-'):
            effect = 'succeeded' if status == 'completed' else status, json.loads(body)['receipt']
            if by_life.get((key, life)) != effect:
                wrong.append('%s %d: %s, not %s' % (key, life, effect, by_life.get((key, life))))
    c.expect('a payment that was finished was charged, and one that failed was not', wrong)


def every_call_is_answered(c):
    results = decided(c)
    stored = c.sql("SELECT k.call_id, k.status, (k.response_body->>'receipt')::bigint, l.status"
                   ' FROM idempotency_call k JOIN transaction_log l USING (scope, request_id, life)')
    c.expect('a charge is known', ['%s: %s' % (row, results[row[0]]) for row in stored
                                   if row[0] in results and row[1:3] != results[row[0]]])
    c.expect('nothing waits for a person any more', c.sql('SELECT request_id, call_id FROM idem_review'))
    c.expect('a request with a call comes to its end',
             [row for row in c.sql('SELECT request_id, status FROM transaction_log WHERE scope = %s'
                                   ' AND expires_at > clock_timestamp()', calls.SCOPE)
              if row[1] not in ('completed', 'failed')])


INVARIANTS = (one_charge_for_a_life, charges_are_fenced, sent_again_only_where_it_is_safe,
              answers_are_the_providers, effects_are_charged, every_call_is_answered)

/* A run's data set, read beside the main thread. */
#include "server/control/data_reader.h"

#include "common/time.h"

#include <stdlib.h>
#include <string.h>

enum { ASKED_MS = 10000 /* what nobody asks for any more is forgotten, and not read on */ };

static void read_data(void *argument)
{
    struct data_reader *reader = argument;
    reader->err =
        run_data_open_until(&reader->spec, NULL, &reader->stop, &reader->data, &reader->reason);
    if (reader->err == ERR_OK && reader->entropy && reader->spec.data.kind == SPEC_TEXT)
        reader->unigram_entropy = data_entropy(reader->data, &reader->stop);
    atomic_store(&reader->over, true);
}

static enum err begin(struct data_reader *reader, const struct data_wish *wish,
                      struct reason *reason)
{
    const struct slice text = {(const uint8_t *)wish->spec, strlen(wish->spec)};
    TRY(spec_parse(text, "the run's spec", NULL, &reader->spec, reason));
    reader->text = strdup(wish->spec);
    if (reader->text == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to read the data set");
    reader->entropy = wish->entropy;
    atomic_store(&reader->over, false);
    enum err err = thread_start(&reader->thread, "data", read_data, reader);
    if (err == ERR_OK)
        return ERR_OK;
    free(reader->text);
    reader->text = NULL;
    return reason_set(reason, err, "no thread to read the data set");
}

static bool reads(const struct data_reader *reader)
{
    return reader->text != NULL && !atomic_load(&reader->over);
}

bool data_reader_is_for(const struct data_reader *reader, const struct data_wish *wish)
{
    return strcmp(reader->text, wish->spec) == 0 && reader->entropy == wish->entropy;
}

/* Another one's answer waits until it is forgotten: two who ask in turn would read for ever. */
enum err data_reader_ask(struct data_reader *reader, const struct data_wish *wish, uint64_t now_ns,
                         struct reason *reason)
{
    if (atomic_load(&reader->stop))
        data_reader_forget(reader); /* what was read of it is no answer */
    bool begins = reader->text == NULL;
    if (begins)
        TRY(begin(reader, wish, reason));
    bool ours = data_reader_is_for(reader, wish);
    if (ours)
        reader->asked_ns = now_ns;
    if (!ours)
        return reason_set(reason, ERR_SEARCHING,
                          "the coordinator reads the data set of another run");
    /* A thread that was told to stop may have ended just now. */
    if (begins || reads(reader) || atomic_load(&reader->stop))
        return reason_set(reason, ERR_SEARCHING, "the coordinator reads the data set");
    enum err err = reader->err;
    reader->told = err == ERR_OK;
    if (err == ERR_OK)
        return ERR_OK;
    ignore(reason_set(reason, err, "%s", reason_text(err, &reader->reason)));
    data_reader_forget(reader); /* who asks once more looks anew */
    return err;
}

struct data *data_reader_take(struct data_reader *reader)
{
    struct data *data = reader->data;
    reader->data = NULL;
    data_reader_forget(reader);
    return data;
}

void data_reader_forget(struct data_reader *reader)
{
    if (!reads(reader))
        data_reader_release(reader);
}

void data_reader_end_call(struct data_reader *reader, bool asks_again)
{
    if (reader->told && !asks_again)
        data_reader_forget(reader);
    reader->told = false;
}

void data_reader_go_on(struct data_reader *reader, uint64_t now_ns)
{
    if (reader->text == NULL || now_ns < time_after_ms(reader->asked_ns, ASKED_MS))
        return;
    atomic_store(&reader->stop, true);
    data_reader_forget(reader);
}

void data_reader_release(struct data_reader *reader)
{
    if (reader->text == NULL)
        return;
    atomic_store(&reader->stop, true);
    thread_join(&reader->thread);
    data_free(reader->data);
    free(reader->text);
    *reader = (struct data_reader){0};
}

#include "server/member/admission.h"

enum err admission_init(struct admission *admission)
{
    *admission = (struct admission){0};
    return digest_mac_init(&admission->key);
}

void admission_release(struct admission *admission)
{
    digest_mac_release(&admission->key);
}

void admission_set(struct admission *admission, const struct admission_term *term)
{
    admission->term = term->term;
    admission->run = term->run;
    digest_mac_set_key(&admission->key, term->key);
}

/* Why a proof does not hold under the key that is known here. */
static enum err not_proved(const struct admission *admission, uint64_t member)
{
    uint64_t term = proof_member_term(member);
    if (term < admission->term)
        return ERR_OLD_GENERATION; /* its coordinator is gone: it joins the next one's run */
    if (term > admission->term)
        return ERR_BEHIND; /* the command that brings its key is under way */
    return admission->run == 0 ? ERR_NO_RUN : ERR_UNKNOWN_MEMBER;
}

/* The key decides, not the term: a coordinator that takes a higher term keeps its key and its
 * members. */
enum err admission_member(struct admission *admission, uint64_t member, const struct proof *secret)
{
    struct proof right = proof_member(&admission->key, admission->run, member);
    bool proved = admission->run != 0 && proof_same(&right, secret);
    return proved ? ERR_OK : not_proved(admission, member);
}

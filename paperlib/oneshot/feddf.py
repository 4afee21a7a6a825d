"""FedDF without data: the server's model starts at the clients' average and is distilled from their averaged logits.

Lin et al. 2020, "Ensemble distillation for robust model fusion in federated learning". FedHydra compares with it and
does not say where its images come from; here they come from DENSE's generator.
"""

from paperlib.oneshot.dense import DENSE


class FedDF(DENSE):
    """DENSE with a student that starts at the clients' average, that the generator does not see, and at T = 1.

    There is no validation set for early stopping, and the optimizer is that of the other methods: the first epochs are
    often the best, and later ones lose most of the average's accuracy. ``student_init`` "fresh" skips the average.
    """

    lambda_2: float = 0.0
    temperature: float = 1.0
    student_init: str = "average"
